"""Scenario files as tests of pytest, which finds this plugin wherever meshplan is installed.

Nothing happens unless pytest is asked: by ``--meshplan``, or by ``meshplan_paths`` in its
configuration.  Nothing heavy is imported before a scenario is found.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from meshplan.suite.case import Case

_TIME_LIMIT = "meshplan_time_limit"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--meshplan`` and the settings."""
    group = parser.getgroup("meshplan", "scenario files of meshplan")
    group.addoption(
        "--meshplan",
        action="store_true",
        help="collect scenario files (*.yaml with 'meshplan: 1') as tests, wherever they are",
    )
    parser.addini(
        "meshplan_paths",
        "folders and files whose scenarios are always collected, from the folder of this file",
        type="paths",
        default=[],
    )
    parser.addini(_TIME_LIMIT, "seconds for each scenario", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that all scenarios have."""
    config.addinivalue_line("markers", "meshplan: a scenario file of meshplan")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> ScenarioFile | None:
    """Collect a scenario file that was asked for."""
    if file_path.suffix != ".yaml" or not _is_wanted(file_path, parent.config):
        return None
    from meshplan.suite.files import is_scenario

    if not is_scenario(file_path):
        return None
    return ScenarioFile.from_parent(parent, path=file_path)


def _is_wanted(path: Path, config: pytest.Config) -> bool:
    if config.getoption("meshplan"):
        return True
    folders: list[Path] = config.getini("meshplan_paths")
    return any(path.is_relative_to(folder) for folder in folders)


class ScenarioFile(pytest.File):
    """A scenario file; it is one test."""

    def collect(self) -> Iterable[ScenarioItem]:
        """The test, by the name of the file."""
        yield ScenarioItem.from_parent(self, name=self.path.stem)


class ScenarioFailed(Exception):
    """A scenario that did not come out as expected, or could not be solved."""

    def __init__(self, case: Case) -> None:
        super().__init__("\n".join(fault.text for fault in case.faults))
        self.case = case


class ScenarioItem(pytest.Item):
    """The solution of a scenario, held to its ``expect:``; skipped if it has none."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.add_marker("meshplan")

    def runtest(self) -> None:
        """Solve the scenario."""
        from meshplan.suite.case import run_case

        case = run_case(self.path, _time_limit_s(self.config), debug=True)
        if case.failed:
            raise ScenarioFailed(case)
        if case.outcome == "open":
            pytest.skip(case.said)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What differs, each with its line; a fault of meshplan with its traceback."""
        if not isinstance(excinfo.value, ScenarioFailed):
            return super().repr_failure(excinfo, style)
        from meshplan.scenarios.errors import printable

        case = excinfo.value.case
        if case.outcome == "ERROR":  # the text begins with its place
            faults = [one.text for one in case.faults]
        else:
            faults = [f"{one.file}:{one.line}: {one.text}" for one in case.faults]
        return printable("\n".join([f"{self.name}: {case.said}", *faults]))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands, and its name."""
        return self.path, 0, f"scenario: {self.name}"


def _time_limit_s(config: pytest.Config) -> float | None:
    said: str = config.getini(_TIME_LIMIT)
    if not said:
        return None
    try:
        seconds = float(said)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise pytest.UsageError(f"{_TIME_LIMIT} is {said!r}, but is a positive number of seconds")
    return seconds

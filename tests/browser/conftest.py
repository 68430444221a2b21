"""A headless Chromium, and pages to look at in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.chromium import Browser, NoChromium, chromium
from meshplan.solver.compare.why import why
from meshplan.solver.report.html.page import html_page
from meshplan.solver.results import Alternative, Plan, Relaxation
from tests.meshplan.results import diagnosis, infeasible, plan, report, small_file
from tests.solver.small import toy_scenario


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser that all tests share."""
    with ExitStack() as stack:
        try:
            found = stack.enter_context(chromium())
        except NoChromium as missing:
            pytest.skip(str(missing))
        yield found


@dataclasses.dataclass(frozen=True)
class Shown:
    """A page, and the JSON of its result."""

    path: Path
    data: dict[str, Any]


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shown]:
    """Pages of several kinds of result."""
    folder = tmp_path_factory.mktemp("pages")
    file = small_file(folder, "description: <b>bold</b> & <script>window.evil = 1</script>\n")
    results: dict[str, Any] = {
        "plan": _with_lists(plan(file, layout="tp=2,ep=2,pp=2,vpp=2")),
        "check": report(file, "tp=2,ep=2,pp=4"),
        "illegal": report(file, "tp=3"),
        "infeasible": infeasible(file),
        "diagnosis": diagnosis(file),
        "why": why(toy_scenario(32), "tp=2,ep=2"),
    }
    shown = {}
    for name, result in results.items():
        path = folder / f"{name}.html"
        path.write_text(html_page(result), "utf-8")
        shown[name] = Shown(path, result.to_json())
    return shown


def _with_lists(found: Plan) -> Plan:
    """The plan with a front, alternatives and relaxations."""
    step_s = found.cost.time.step_us / 1e6
    others = tuple(
        Alternative(dataclasses.replace(found.layout, dp=dp), step_s * factor, gib, "other")
        for dp, factor, gib in ((2, 1.0, 9.0), (4, 1.1, 8.0), (8, 0.9, 12.0))
    )
    gain = Relaxation("memory", "1 GiB more", None, "optimal", step_s / 2, 1.0, found.layout)
    return dataclasses.replace(
        found,
        alternatives=others,
        pareto=others,
        relaxations=(gain,),
        advisories=(("dp-floor", "so and so"),),
        binding=("work: so and so",),
    )

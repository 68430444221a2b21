"""``meshplan test``: run scenario files and hold the answers to what they expect."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from meshplan.cli.exit_codes import DEBUG_VARIABLE
from meshplan.cli.options import time_limit_option

if TYPE_CHECKING:
    from pathlib import Path

    from meshplan.cli.expectations import Case

_STYLES = {"pass": "green", "FAIL": "red", "ERROR": "red", "open": "yellow"}


@click.command(short_help="Run scenario files and hold them to what they expect.")
@click.argument("paths", metavar="PATHS...", nargs=-1, required=True)
@click.option("--junit", "junit_path", metavar="PATH", help="Write the outcome as JUnit XML.")
@time_limit_option
@click.pass_context
def test(
    ctx: click.Context,
    paths: tuple[str, ...],
    junit_path: str | None,
    time_limit_s: float | None,
) -> None:
    """Solve scenario files, or all in folders, and hold the answers to their `expect:`.

    A scenario without `expect:` is solved and reported, and does not fail.  --time-limit holds for
    each.
    """
    from meshplan.cli.exit_codes import DONE, NOT_AS_HOPED, STOPPED
    from meshplan.cli.expectations import scenario_files
    from meshplan.cli.junit import junit_xml
    from meshplan.cli.whole_file import WholeFile, keep_apart
    from meshplan.scenarios.errors import one_line

    target = WholeFile(junit_path, "--junit") if junit_path is not None else None
    files = scenario_files(paths)
    keep_apart([target], _inputs(files) if target is not None else {})
    width = max(len(str(file)) for file in files)
    cases: list[Case] = []
    for file in files:
        case = _run(file, time_limit_s)
        if case is None:
            left = f"{len(files) - len(cases)} of {len(files)} not judged"
            click.echo(f"stopped in {one_line(str(file))}; {left}")
            ctx.exit(STOPPED)
        cases.append(case)
        _print(case, width)
    failed = sum(case.outcome in ("FAIL", "ERROR") for case in cases)
    opened = sum(case.outcome == "open" for case in cases)
    click.echo(
        f"{len(cases) - failed - opened} passed, {failed} failed, {opened} without expectation, "
        f"in {sum(case.seconds for case in cases):.1f} s"
    )
    if target is not None:
        target.write(junit_xml(cases))
    ctx.exit(NOT_AS_HOPED if failed else DONE)


def _inputs(files: Iterable[Path]) -> dict[str, Path]:
    """The scenario files and what they name, as far as they can be read."""
    import meshplan
    from meshplan.scenarios import input_files

    found: dict[str, Path] = {}
    for file in files:
        found[f"{file}"] = file
        with suppress(meshplan.InputError):
            scenario = meshplan.load(file)
            found |= {f"{name} of {file}": path for name, path in input_files(scenario).items()}
    return found


def _run(file: Path, time_limit_s: float | None) -> Case | None:
    """Outcome of one file; None if the user stopped it."""
    import meshplan
    from meshplan.cli.expectations import Case, answer_text, mismatches

    started = time.perf_counter()
    try:
        scenario = meshplan.load(file)
        result = meshplan.solve(scenario, time_limit_s=time_limit_s)
    except meshplan.InputError as error:
        return Case(file, "ERROR", time.perf_counter() - started, (str(error),), "bad input")
    except Exception as error:
        if os.environ.get(DEBUG_VARIABLE) == "1":
            raise
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return Case(file, "ERROR", time.perf_counter() - started, (text,), "meshplan failed")
    if getattr(result, "stopped_by", None) == "interrupt":
        return None
    seconds = time.perf_counter() - started
    text = answer_text(result)
    if scenario.expect is None:
        return Case(file, "open", seconds, (), f"{text} (no expectation)")
    wrong = mismatches(scenario.expect, result)
    return Case(file, "FAIL" if wrong else "pass", seconds, wrong, text)


def _print(case: Case, width: int) -> None:
    from meshplan.scenarios.errors import one_line

    outcome = click.style(f"{case.outcome:5}", fg=_STYLES[case.outcome])
    file = one_line(str(case.file))
    click.echo(f"{outcome} {file:{width}} {case.seconds:7.2f} s  {one_line(case.answer)}")
    for text in case.wrong:
        for line in text.split("\n"):
            click.echo(f"        {one_line(line)}")

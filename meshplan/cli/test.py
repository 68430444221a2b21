"""``meshplan test``: run scenario files and hold the answers to what they expect."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from meshplan.cli.exit_codes import DEBUG_VARIABLE
from meshplan.cli.options import jobs_option, time_limit_option

if TYPE_CHECKING:
    from pathlib import Path

    from meshplan.suite.case import Case


@click.command(short_help="Run scenario files and hold them to what they expect.")
@click.argument("paths", metavar="PATHS...", nargs=-1, required=True)
@jobs_option
@click.option(
    "-k",
    "expression",
    metavar="EXPRESSION",
    help="Only files whose path has these parts: 'h100 and not 128k'.",
)
@click.option(
    "--only-scenarios",
    is_flag=True,
    help="Pass over given files that are no scenarios, and succeed if none is left: for hooks.",
)
@click.option("--fail-fast", "-x", is_flag=True, help="Stop at the first case that fails.")
@time_limit_option
@click.option(
    "--update", is_flag=True, help="Write what came out into `expect:`, and show the difference."
)
@click.option("--lock", "write_lock", is_flag=True, help="Write all answers into the lock file.")
@click.option("--locked", is_flag=True, help="Hold all answers to those of the lock file, too.")
@click.option(
    "--lock-file",
    metavar="PATH",
    help="The file of --lock and --locked; meshplan.lock by default.",
)
@click.option("--junit", "junit_path", metavar="PATH", help="Write the outcome as JUnit XML.")
@click.option(
    "--github", is_flag=True, help="Print failures as annotations of GitHub Actions, too."
)
@click.pass_context
def test(
    ctx: click.Context,
    paths: tuple[str, ...],
    jobs: int | None,
    expression: str | None,
    only_scenarios: bool,
    fail_fast: bool,
    time_limit_s: float | None,
    update: bool,
    write_lock: bool,
    locked: bool,
    lock_file: str | None,
    junit_path: str | None,
    github: bool,
) -> None:
    """Solve scenario files, or all in folders, and hold the answers to their `expect:`.

    A scenario without `expect:` is solved and reported, and does not fail.  --time-limit holds for
    each.  Ctrl-C shows what is judged so far.
    """
    from meshplan.cli.exit_codes import DONE, NOT_AS_HOPED, STOPPED
    from meshplan.cli.kept import LockFile, updated
    from meshplan.cli.whole_file import WholeFile, keep_apart
    from meshplan.suite.files import are_scenarios, scenario_files, selected
    from meshplan.suite.junit import junit_xml

    lock = LockFile(lock_file, writes=write_lock, holds=locked)
    target = WholeFile(junit_path, "--junit") if junit_path is not None else None
    if only_scenarios:
        paths = tuple(are_scenarios(paths))
        if not paths:
            click.echo("no scenario among the files")
            ctx.exit(DONE)
    files = scenario_files(paths)
    if expression is not None:
        files = selected(files, expression)
    outputs = [target, lock.target]
    keep_apart(outputs, _inputs(files) if any(outputs) else {})
    run = _run(files, jobs, fail_fast, time_limit_s, github, lock.held)
    cases = [*run.cases, *lock.vanished(annotate=github)]
    if not run.stopped:
        cases = [updated(case) for case in cases] if update else cases
        cases = lock.written(cases)
    click.echo(_totals(cases, run))
    if target is not None:
        target.write(junit_xml(cases, run.wall_s))
    failed = any(case.failed for case in cases)
    ctx.exit(STOPPED if run.stopped else NOT_AS_HOPED if failed else DONE)


@dataclass(frozen=True)
class _Run:
    """The cases of all files, how long they took, and whether Ctrl-C ended it."""

    cases: Sequence[Case]
    wall_s: float
    stopped: bool


def _run(
    files: Sequence[Path],
    jobs: int | None,
    fail_fast: bool,
    time_limit_s: float | None,
    github: bool,
    held: Callable[[Case], Case],
) -> _Run:
    from meshplan.cli.case_lines import CaseLines
    from meshplan.suite.workers import Tick, run_here, run_in_workers
    from meshplan.workers import available_cpus

    started = time.perf_counter()
    debug = os.environ.get(DEBUG_VARIABLE) == "1"
    if jobs == 1 or len(files) == 1:
        events = run_here(files, time_limit_s, debug=debug)
    else:
        events = run_in_workers(files, jobs or available_cpus(), time_limit_s, debug=debug)
    stopped = False
    with CaseLines(files, annotate=github) as lines:
        try:
            with closing(events):
                for event in events:
                    if isinstance(event, Tick):
                        lines.tick(event)
                        continue
                    case = held(event[1])
                    lines.add(event[0], case)
                    if fail_fast and case.failed:
                        break
        except KeyboardInterrupt:
            stopped = True
        cases = lines.add_rest()
    return _Run(cases, time.perf_counter() - started, stopped)


def _totals(cases: Sequence[Case], run: _Run) -> str:
    outcomes = [case.outcome for case in cases]
    failed = sum(case.failed for case in cases)
    counts = [
        f"{outcomes.count('pass')} passed",
        f"{failed} failed",
        f"{outcomes.count('open')} without expectation",
        *(f"{outcomes.count(one)} {one}" for one in ("updated", "not run") if one in outcomes),
    ]
    return f"{'stopped: ' if run.stopped else ''}{', '.join(counts)}, in {run.wall_s:.1f} s"


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

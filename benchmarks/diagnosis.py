"""Do our first repairs hold what maintainers advised?  Prints a table, and how long it takes.

Each public report of a layout that is refused or does not fit becomes a scenario in which all
that the report gives is pinned.  It must be proved infeasible, with the rule that the report
breaks (``benchmarks/user_reports.py``); and among the first three repairs must be the remedy of
the thread, or a smaller change of the same fields::

    python benchmarks/diagnosis.py [--json PATH] [FILE]

FILE defaults to ``benchmarks/data/user_reports.yaml``; any other file of that form will do, and
its ``fix`` may be prose (``EP 8->4; or 2 nodes``).  Exit code 1 if a verdict is wrong or a remedy
is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from benchmarks.fixes import reached, read_fix  # noqa: E402
from benchmarks.report_cases import OutOfScope, Report  # noqa: E402
from benchmarks.user_reports import DATA, cases_of, judge  # noqa: E402
from meshplan.scenarios.errors import InputError  # noqa: E402

#: Repairs among which the remedy must be.
FIRST = 3
#: Seconds that repairs of single levers may take: the median, and 19 of 20.
MEDIAN_S, MOST_S = 5.0, 30.0
#: More memory than any layout needs.
_AMPLE_GIB = 1e6
_DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "ga")


@dataclass(frozen=True)
class Row:
    """One report.

    Attributes
    ----------
    verdict
        Whether we say that it is infeasible, by the right rule; None where it is out of scope.
    reached
        Whether the remedy is among the first repairs; None where the report gives none.
    repairs
        All repairs, in their order.
    single_s
        Seconds for each repair of one lever, its plan included.
    """

    id: str
    verdict: bool | None
    reached: bool | None
    fix: str
    repairs: tuple[str, ...]
    single_s: tuple[float, ...]
    note: str


def row(case: dict[str, Any], memory_gb: dict[str, float]) -> Row:
    """What we say of one report."""
    name, fix = str(case["id"]), str(case["expect"].get("fix") or "")
    judged = judge(case, memory_gb)
    if judged.agree is None:
        return Row(name, None, None, fix, (), (), judged.note)
    try:
        report = Report(case, memory_gb)
        found, seconds = _repaired(report)
    except OutOfScope as reason:
        return Row(name, None, None, fix, (), (), f"out of scope: {reason}")
    except InputError as error:
        return Row(name, False, False, fix, (), (), str(error).splitlines()[0])
    if found is None:
        return Row(name, False, None, fix, (), (), "some layout fits")
    texts = tuple("; ".join(change.text for change in one.changes) for one in found)
    wanted = read_fix(fix, int(report.cluster.get("gpus_per_node") or 8))
    hit = reached(wanted, found[:FIRST]) if wanted.fields else None
    return Row(name, judged.agree, hit, fix, texts, seconds, ", ".join(judged.our_rules))


def _repaired(report: Report) -> tuple[list[Any] | None, tuple[float, ...]]:
    """The repairs of the report's scenario, and seconds for those of one lever."""
    from meshplan.constraints.resolve import resolve
    from meshplan.scenarios import from_mapping
    from meshplan.solver.repairs import Repair
    from meshplan.solver.repairs.search import search_repairs
    from meshplan.solver.repairs.trials import Trials

    if report.weights_only:
        raise OutOfScope("adapters on frozen weights are not planned here")
    problem = resolve(from_mapping(pinned(report)))
    trials = Trials(problem, fixed=_figures(report))
    if trials.works({}):
        return None, ()
    found, seconds, since = [], [], time.monotonic()
    for one in search_repairs(trials):
        if isinstance(one, Repair):
            found.append(one)
            if "+" not in one.lever:
                seconds.append(time.monotonic() - since)
            since = time.monotonic()
    return found, tuple(round(one, 2) for one in seconds)


def _figures(report: Report) -> dict[str, object]:
    """Memory of a GPU for which another one stands in; ample where a report says nothing of it."""
    room = report.memory_gib()
    if room is None and report.written:
        return {"node_type.hbm_gib": _AMPLE_GIB}
    stands_in = any("stands in" in note for note in report.filled)
    return {"node_type.hbm_gib": room} if room is not None and stands_in else {}


def pinned(report: Report) -> dict[str, Any]:
    """The scenario of a report with all that it gives of the layout pinned."""
    data = report.scenario()
    stated = report.layout()
    if not report.written:
        data["options"] = {"optimizer_offload": False}
        return data
    data["layout"] = {name: stated[name] for name in _DEGREES if name in stated}
    if report.case.get("mbs"):
        data["layout"]["mbs"] = stated["mbs"]
    if "cp_comm" in stated:
        data["layout"]["cp_comm"] = stated["cp_comm"]
    data["options"] = {"optimizer_offload": bool(stated["offload"])}
    if report.is_moe:
        data["options"]["dispatcher"] = stated["dispatcher"]
    if "recompute" in stated:
        data["options"]["recompute"] = stated["recompute"]
    if "pipeline" in stated:
        data["options"]["pipeline_layout"] = stated["pipeline"]
    return data


def table(rows: Sequence[Row]) -> str:
    """All rows, then totals and times."""
    return "\n".join(_lines(rows))


def _lines(rows: Sequence[Row]) -> Iterator[str]:
    yield f"{'id':7}{'verdict':9}{'fix':9}remedy of the thread | first repairs"
    for one in rows:
        verdict = "-" if one.verdict is None else "right" if one.verdict else "WRONG"
        fix = "-" if one.reached is None else "reached" if one.reached else "MISSED"
        shown = " | ".join(one.repairs[:FIRST]) if one.repairs else one.note
        yield f"{one.id:7}{verdict:9}{fix:9}{one.fix} | {shown}"
    judged = [one for one in rows if one.verdict is not None]
    with_fix = [one for one in judged if one.reached is not None]
    yield (
        f"{len(rows)} reports: {len(rows) - len(judged)} out of scope; verdict right in "
        f"{sum(bool(one.verdict) for one in judged)} of {len(judged)}; remedy among the first "
        f"{FIRST} repairs in {sum(bool(one.reached) for one in with_fix)} of {len(with_fix)}"
    )
    seconds = sorted(second for one in rows for second in one.single_s)
    if seconds:
        late = seconds[min(len(seconds) - 1, int(0.95 * len(seconds)))]
        yield (
            f"{len(seconds)} repairs of one lever: median {statistics.median(seconds):.1f} s "
            f"(aim {MEDIAN_S:g}), 95 % within {late:.1f} s (aim {MOST_S:g})"
        )


def main(words: Sequence[str] | None = None) -> int:
    """Repair a file of reports; exit code 1 if a verdict is wrong or a remedy missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=DATA, metavar="FILE")
    json_option(parser, "the rows")
    arguments = parser.parse_args(words)
    return exit_code(lambda: _repair_all(arguments), yaml.YAMLError)


def _repair_all(arguments: argparse.Namespace) -> int:
    results = Results({"--json": arguments.json}, [arguments.file])
    cases, memory_gb = cases_of(arguments.file)
    rows = [row(one, memory_gb) for one in cases if one["expect"]["verdict"] == "infeasible"]
    with results.printing():
        print(table(rows))
    results.deliver("--json", lambda: dumps([asdict(one) for one in rows]))
    return int(any(one.verdict is False or one.reached is False for one in rows))


if __name__ == "__main__":
    sys.exit(main())

"""Do we say of public user reports what turned out to be true?  Prints a table.

Each report is a layout that somebody ran into trouble with, or was told would not run, with the
verdict that the thread, the framework's source or plain arithmetic gives.  The script turns each
into a scenario and a layout, lets :func:`meshplan.check` judge it (``meshplan.solve`` where no
layout is given), and compares verdict and rule::

    python benchmarks/user_reports.py [--json PATH] [FILE]

FILE defaults to ``benchmarks/data/user_reports.yaml``, whose head explains its form; any other
file of that form will do.  Figures that a report leaves out are filled in so that they cannot
break a rule.  Memory is judged only where all figures it rests on are given: full training, a
known GPU, a model with its widths.

A verdict agrees if *infeasible* meets *infeasible* and one of the rules that the report breaks is
among ours, or if both allow the layout (*feasible*, and *warn* for a layout that runs but should
not).  Reports about what a layout does not express are listed with the reason.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from benchmarks.report_cases import OutOfScope, Report  # noqa: E402
from meshplan.scenarios.errors import InputError  # noqa: E402
from meshplan.scenarios.files import read_file  # noqa: E402

DATA = ROOT / "benchmarks" / "data" / "user_reports.yaml"
#: Seconds for a report without a layout, which takes a search.
SOLVE_S = 30.0
MEMORY = "memory-capacity"

#: Our rules (regular expressions over their ids) by the number that reports give to a kind of rule.
RULES = {
    "R01": r"world-dense.*|dp-derived",
    "R02": r"world-expert.*|dense-expert-grid",
    "R03": r"heads-tp|gdn-heads-tpcp",
    "R04": r"kv-groups-tp|qkv-out-tp|cp-a2a-heads|heads-kv-groups",
    "R05": r"experts-ep|ep-needs-moe",
    "R06": r"gbs-divisible.*",
    "R07": r"layers-.*|account-.*|layout-decoder-count|slots-hold-layers",
    "R08": r"uneven-.*|layout-decoder-count|layout-stage-count",
    "R09": r"vpp-needs-pp.*",
    "R10": r"interleaved-.*",
    "R11": r"seq-2cp.*|sp-seq-divisible|bridge-sft-seq.*",
    "R12": r"sp-needs-tp.*|moe-tp-needs-sp",
    "R13": r"layout-.*",
    **dict.fromkeys(("R14", "R15", "R16", "R17"), MEMORY),
    "R25": r"ep-within-domain|tp-within-domain",
    "R23": r"deepep-.*|bridge-(deepep|hybridep)-.*|hybridep-.*|flex-.*",
    "R24": r"cg-.*|graphs?-.*|bridge-cg.*",
}


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    id: str
    source: str
    expected: str
    expected_rules: tuple[str, ...]
    ours: str
    our_rules: tuple[str, ...]
    agree: bool | None
    note: str


# -- our verdict ---------------------------------------------------------------------------------


def judge(case: dict[str, Any], memory_gb: dict[str, float]) -> Row:
    """Our verdict on one report next to the expected one."""
    from meshplan.scenarios.errors import InputError

    expect, source = case["expect"], case.get("source") or {}
    head = (
        str(case["id"]),
        f"{source.get('repo', '')} {source.get('ref', '')}".strip(),
        str(expect["verdict"]),
        tuple(expect.get("rules") or ()),
    )
    try:
        report = Report(case, memory_gb)
        ours, rules, note = _verdict(report)
        if report.verdict == "infeasible" and ours != "infeasible" and _needs_memory(report):
            raise OutOfScope("memory: the report leaves open what it rests on")
    except OutOfScope as reason:
        return Row(*head, "-", (), None, f"out of scope: {reason}")
    except InputError as error:
        return Row(*head, "error", (), False, str(error).splitlines()[0])
    return Row(*head, ours, rules, _agrees(report, ours, rules), note)


def _needs_memory(report: Report) -> bool:
    judged = {rule for rule in report.rules if rule in RULES}
    return (
        bool(judged) and all(RULES[rule] == MEMORY for rule in judged) and not (report.memory_gib())
    )


def _agrees(report: Report, ours: str, rules: tuple[str, ...]) -> bool:
    if (report.verdict == "infeasible") != (ours == "infeasible"):
        return False
    if ours != "infeasible":
        return True
    patterns = [RULES[rule] for rule in report.rules if rule in RULES]
    return any(re.fullmatch(pattern, rule) for pattern in patterns for rule in rules)


def _verdict(report: Report) -> tuple[str, tuple[str, ...], str]:
    import meshplan
    from meshplan.constraints.problem import QUANTA_PER_GIB
    from meshplan.scenarios import from_mapping

    data = report.scenario()
    if not report.written:
        data["options"] = {"optimizer_offload": False}
        result = meshplan.solve(from_mapping(data), time_limit_s=SOLVE_S)
        if isinstance(result, meshplan.Infeasible):
            return "infeasible", result.conflicts[0].rules, "by search"
        return ("unknown" if result.status == "unknown" else "feasible"), (), "by search"
    checked = meshplan.check(from_mapping(data), report.layout())
    notes = list(report.filled)
    if checked.violations:
        return "infeasible", tuple(one.rule for one in checked.violations), "; ".join(notes)
    room = report.memory_gib()
    if room is not None and checked.cost is not None:
        ranks = checked.cost.ranks
        held = [rank.weights if report.weights_only else rank.peak for rank in ranks]
        peak = max(held) / QUANTA_PER_GIB
        what = "weights " if report.weights_only else ""
        notes.insert(0, f"{what}{peak:.0f} of {room:.0f} GiB")
        if peak > room:
            return "infeasible", (MEMORY,), "; ".join(notes)
    warnings = tuple(_warnings(checked))
    return ("warn" if warnings else "feasible"), warnings, "; ".join(notes)


def _warnings(checked: Any) -> Iterator[str]:
    """Groups that leave their NVLink domain, too few micro-batches, and advice."""
    layout, cluster = checked.layout, checked.problem.cluster
    blocks = {"tp": layout.tp, "cp": layout.tp * layout.cp, "ep": layout.etp * layout.ep}
    for kind, block in blocks.items():
        if getattr(layout, kind) > 1 and not cluster.fits_domain(min(block, cluster.gpus)):
            yield f"{kind}-leaves-domain"
    if layout.ga < 2 * layout.pp and layout.pp > 1:
        yield "few-micro-batches"
    yield from (name for name, _ in checked.advisories)


# -- the table -----------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """All rows, then the totals."""
    lines = [f"{'id':8}{'expected':12}{'rules':18}{'ours':12}{'':4}rules, warnings; note"]
    for row in rows:
        if row.agree is None:
            lines.append(f"{row.id:8}{row.expected:12}{' '.join(row.expected_rules):18}{row.note}")
            continue
        mark = "ok" if row.agree else "NO"
        what = "; ".join(part for part in (", ".join(row.our_rules), row.note) if part)
        head = f"{row.id:8}{row.expected:12}{' '.join(row.expected_rules):18}"
        lines.append(f"{head}{row.ours:12}{mark:4}{what}")
    judged = [row for row in rows if row.agree is not None]
    agreed = sum(bool(row.agree) for row in judged)
    lines.append(
        f"{len(rows)} reports: {agreed} of {len(judged)} judged agree, "
        f"{len(rows) - len(judged)} out of scope"
    )
    return "\n".join(lines)


def judge_file(path: Path) -> list[Row]:
    """All reports of a file, judged, in its order."""
    cases, memory_gb = cases_of(path)
    return [judge(case, memory_gb) for case in cases]


def cases_of(path: Path) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The reports of a file, and the memory of GPUs by what their names start with."""
    data = yaml.safe_load(read_file(path))
    if not isinstance(data, dict) or not isinstance(data.get("cases"), list):
        raise InputError(
            "the file has no list of cases",
            advice="the head of benchmarks/data/user_reports.yaml explains its form.",
            file=str(path),
        )
    memory = data.get("meta", {}).get("gpu_mem_gb", {})
    # Longest names first: A100-80 before A100.
    return data["cases"], dict(sorted(memory.items(), key=lambda item: -len(item[0])))


def main(words: Sequence[str] | None = None) -> int:
    """Judge a file of reports; exit code 1 if any verdict differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=DATA, metavar="FILE")
    json_option(parser, "the rows")
    arguments = parser.parse_args(words)
    return exit_code(lambda: _compare(arguments), yaml.YAMLError)


def _compare(arguments: argparse.Namespace) -> int:
    results = Results({"--json": arguments.json}, [arguments.file])
    rows = judge_file(arguments.file)
    with results.printing():
        print(table(rows))
    results.deliver("--json", lambda: dumps([asdict(row) for row in rows]))
    return int(any(row.agree is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())

"""Conflicts of random infeasible scenarios: whether they are irreducible, and what they take.

Scenarios are drawn by seed (``diagnosis_draws.py``) and kept if nothing fits; beside them stand the
infeasible ones of ``scenarios/``.  Each conflict is judged apart from the procedure that found it
(``tests/solver/diagnosis/judge.py``): its facts alone must be impossible, and possible without any
one of them.  With ``--repairs`` each repair is solved again, its plan checked against all rules and
the memory::

    python benchmarks/diagnosis_random.py [--number N] [--first SEED] [--repairs] [--json PATH|-]

Times are of the processor, in seconds.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from benchmarks.diagnosis_draws import draw, kind_of  # noqa: E402
from benchmarks.diagnosis_neighbours import judge_neighbours  # noqa: E402
from benchmarks.solve_time import percentile  # noqa: E402
from meshplan.constraints.memory.verdict import has_room  # noqa: E402
from meshplan.constraints.problem import Problem  # noqa: E402
from meshplan.constraints.resolve import resolve  # noqa: E402
from meshplan.scenarios import from_mapping, load  # noqa: E402
from meshplan.scenarios.errors import InputError  # noqa: E402
from meshplan.solver.diagnosis.conflict import Conflicts  # noqa: E402
from meshplan.solver.diagnosis.diagnose import MOST_CONFLICTS, is_possible  # noqa: E402
from meshplan.solver.diagnosis.queries import Queries  # noqa: E402
from meshplan.solver.judge import violations  # noqa: E402
from meshplan.solver.repairs import Repair  # noqa: E402
from meshplan.solver.repairs.search import repairs  # noqa: E402
from tests.solver.diagnosis.judge import faults  # noqa: E402

#: Scenarios after which the number judged so far is told.
_TOLD = 10


@dataclass
class Row:
    """One scenario.

    Attributes
    ----------
    first_s, all_s
        Until the first conflict (the verdict included), and until all.
    repairs_s
        For the repairs; None where they were not asked for.
    neighbours, unsolved
        Steps short of the repairs that were solved, and those for which the time was too short.
    faults
        What is wrong with a conflict or a repair.
    """

    name: str
    kind: str
    first_s: float = 0.0
    all_s: float = 0.0
    repairs_s: float | None = None
    conflicts: int = 0
    complete: bool = False
    searches: int = 0
    repairs: int = 0
    neighbours: int = 0
    unsolved: int = 0
    faults: list[str] = field(default_factory=list)


def infeasible(first: int) -> Iterator[tuple[int, Problem]]:
    """Seed and problem of all seeds from ``first`` on that nothing fits, until the caller stops."""
    for seed in count(first):
        try:
            problem = resolve(from_mapping(draw(seed)))
        except InputError:  # a drawn precision that the GPU has not, say
            continue
        if not is_possible(Queries(problem)):
            yield seed, problem


def shipped() -> Iterator[tuple[str, Problem]]:
    """The infeasible scenarios of ``scenarios/``."""
    for path in sorted((ROOT / "scenarios").glob("*/*.yaml")):
        if "status: infeasible" in path.read_text("utf-8"):
            yield path.parent.name, resolve(load(path))


def judged(kind: str, problem: Problem, *, with_repairs: bool) -> Row:
    """One scenario diagnosed, and its conflicts judged."""
    row = Row(problem.name, kind)
    started = time.process_time()
    queries = Queries(problem)
    is_possible(queries)
    conflicts = Conflicts(queries)
    first = conflicts.first()
    row.first_s = time.process_time() - started
    found = list(conflicts.every(MOST_CONFLICTS))
    row.all_s = time.process_time() - started
    row.conflicts, row.complete, row.searches = len(found), conflicts.complete, queries.searches
    if found[0] != first:
        row.faults.append("the first conflict is not the first of all")
    for one in found:
        row.faults += [
            f"{' + '.join((*one.pins, *one.rules))}: {text}" for text in faults(problem, one)
        ]
    if with_repairs:
        started = time.process_time()
        made = [one for one in repairs(problem) if isinstance(one, Repair)]
        row.repairs_s = time.process_time() - started
        row.repairs = len(made)
        row.faults += [text for one in made for text in _repair_faults(one)]
        short = judge_neighbours(problem, made)
        row.neighbours, row.unsolved = short.solved, short.unsolved
        row.faults += short.faults
    return row


def _repair_faults(repair: Repair) -> Iterator[str]:
    if not repair.verified or repair.plan is None:
        yield f"{repair.lever} is not verified"
        return
    plan = repair.plan
    broken = violations(plan.problem, plan.layout)
    if broken:
        yield f"{repair.lever}: its plan breaks {broken[0].rule}"
    if not has_room(plan.problem, plan.cost.ranks):
        yield f"{repair.lever}: its plan has no room"


def report(rows: Sequence[Row]) -> str:
    """Counts, times and faults as text."""
    lines = [f"{len(rows)} scenarios: {dict(Counter(row.kind for row in rows))}"]
    number = sum(row.conflicts for row in rows)
    complete = sum(row.complete for row in rows)
    lines.append(f"{number} conflicts; complete in {complete} scenarios")
    if any(row.repairs_s is not None for row in rows):
        made, solved, unsolved = (
            sum(getattr(row, name) for row in rows)
            for name in ("repairs", "neighbours", "unsolved")
        )
        lines.append(f"{made} repairs; {solved} steps short of them solved")
        lines.append(f"{unsolved} not judged, for want of time")
    for name in ("first_s", "all_s", "repairs_s"):
        values = [value for row in rows if (value := getattr(row, name)) is not None]
        if values:
            shown = ", ".join(f"{percentile(values, p):.2f} ({p} %)" for p in (50, 95, 100))
            lines.append(f"{name}: {shown}")
    wrong = [f"{row.name}: {text}" for row in rows for text in row.faults]
    lines.append(f"{len(wrong)} faults")
    return "\n".join([*lines, *wrong])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a conflict or repair is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--number", type=int, default=300, help="random scenarios")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--repairs", action="store_true", help="look for repairs, too")
    parser.add_argument("--no-files", action="store_true", help="leave out those of scenarios/")
    json_option(parser, "the rows")
    given = parser.parse_args(arguments)

    def run() -> int:
        results = Results({"--json": given.json})
        rows: list[Row] = []
        with results.printing():
            last = given.first - 1
            drawn = islice(infeasible(given.first), given.number)
            for source in (drawn, () if given.no_files else shipped()):
                for origin, problem in source:
                    kind = origin if isinstance(origin, str) else kind_of(origin)
                    last = last if isinstance(origin, str) else origin
                    rows.append(judged(kind, problem, with_repairs=given.repairs))
                    if rows[-1].faults:
                        print(rows[-1].name, *rows[-1].faults, sep="\n  ", flush=True)
                    if len(rows) % _TOLD == 0:
                        print(f"{len(rows)} scenarios judged", file=sys.stderr)
            print(report(rows))
            print(f"next seed: {last + 1}")
        results.deliver("--json", lambda: dumps([asdict(row) for row in rows]))
        return int(any(row.faults for row in rows))

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())

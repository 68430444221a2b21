"""The search against the enumeration of all layouts.

The enumeration has the same space, the same rules and the same tables of costs, and uses numpy as
well: for each legal combination of decisions it computes the step time of every split of the layers
in a few matrix products, and the memory of those that are faster than the best layout so far.  What
it lacks is all that makes a search: bounds, dominance, the order of cells, programs::

    python benchmarks/enumeration.py [--json PATH|-] [--limit S] [--most N] [FILES...]

Without files these are the instances of ``solve_time.py`` on up to 32 GPUs, everything free.
Both say the least step time, or that nothing fits; it exits with 1 if they differ.  Instances of
more than ``--most`` layouts (cells times splits) are only counted; others stop after ``--limit``
seconds of CPU time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from benchmarks.solve_instances import instances  # noqa: E402
from benchmarks.solve_time import size, variants  # noqa: E402
from meshplan.constraints.problem import Problem  # noqa: E402
from meshplan.constraints.resolve import resolve  # noqa: E402
from meshplan.scenarios import from_mapping  # noqa: E402
from meshplan.solver.cells import Region  # noqa: E402
from meshplan.solver.costs import CellCosts  # noqa: E402
from meshplan.solver.judge import active_rules  # noqa: E402
from meshplan.solver.placements import (  # noqa: E402
    every_placement,
    number_of_placements,
    placement_peaks,
    placement_steps,
)
from meshplan.solver.regions import Space  # noqa: E402
from meshplan.solver.results import Plan  # noqa: E402
from meshplan.solver.shapes import Shape  # noqa: E402
from meshplan.solver.solve import solve  # noqa: E402

#: GPUs of the largest instances; on more there are far too many layouts.
_GPUS = 32
#: More memory than any layout needs, quanta.
_AMPLE = 1 << 40


class TooLong(Exception):
    """The time for an enumeration has passed."""


@dataclass(frozen=True)
class Row:
    """One instance.

    Attributes
    ----------
    layouts
        Cells times splits.
    enumeration_s, solve_s
        CPU time of both; None where the enumeration was not begun or did not end.
    least, found
        Least step time by enumeration and by the search, us, scaled to the largest batch; None if
        nothing fits.
    """

    name: str
    gpus: int
    layouts: int
    enumeration_s: float | None
    solve_s: float | None
    least: int | None
    found: int | None

    @property
    def agrees(self) -> bool:
        """Whether both say the same, where the enumeration ended."""
        return self.enumeration_s is None or self.least == self.found


def groups(space: Space) -> Iterator[tuple[Region, Shape, np.ndarray, CellCosts]]:
    """All legal cells by pipeline shape: their positions in a region, and their costs."""
    for region in space.each_region():
        everything = np.arange(len(region.bounds))
        cells, vpp_indices, shape_of, shapes = space.shaped(region, everything)
        for position, shape in enumerate(shapes):
            chosen = shape_of == position
            at = tuple(index[cells[chosen]] for index in region.indices)
            yield region, shape, cells[chosen], region.costs.at((*at, vpp_indices[chosen]))


def all_cells(problem: Problem) -> Space:
    """The space of a problem with none of its cells left out for lack of memory."""
    return Space(problem, active_rules(problem), problem.pinned, _AMPLE)


def layouts(problem: Problem) -> int:
    """Number of layouts of the search space."""
    return sum(
        len(cells) * number_of_placements(problem, shape)
        for _, shape, cells, _ in groups(all_cells(problem))
    )


def enumerated(problem: Problem, limit_s: float) -> int | None:
    """Least step time of all layouts that fit, us, scaled to the largest batch; None if none does.

    Raises
    ------
    TooLong
        If it takes more than ``limit_s`` seconds of CPU time.
    """
    deadline = time.process_time() + limit_s
    space, best = all_cells(problem), _AMPLE
    for region, shape, cells, costs in groups(space):
        rows = region.indices[0][cells]
        for slot_kinds in every_placement(problem, shape):
            for cell, row in enumerate(rows.tolist()):
                if time.process_time() > deadline:
                    raise TooLong
                one = costs.take(np.array([cell]))
                ga, gbs = int(region.ga[row]), region.gbs[row]
                step = space.scaled(placement_steps(problem, shape, one, ga, slot_kinds), gbs)
                faster = np.flatnonzero(step < best)
                if not len(faster):
                    continue
                peak = placement_peaks(problem, shape, one, slot_kinds[faster], problem.capacity)
                fits = faster[peak <= problem.capacity]
                best = int(step[fits].min(initial=best))
    return None if best == _AMPLE else best


def compared(name: str, scenario: dict[str, Any], most: int, limit_s: float) -> Row:
    """One instance by both ways."""
    problem = resolve(from_mapping(scenario))
    number = layouts(problem)
    if number > most:
        return Row(name, problem.gpus, number, None, None, None, None)
    started = time.process_time()
    answer = solve(problem)
    solve_s = time.process_time() - started
    found = round(answer.proof.objective * 1e6) if isinstance(answer, Plan) else None
    started = time.process_time()
    try:
        least = enumerated(resolve(from_mapping(scenario)), limit_s)
    except TooLong:
        return Row(name, problem.gpus, number, None, solve_s, None, found)
    return Row(name, problem.gpus, number, time.process_time() - started, solve_s, least, found)


HEAD = (
    "| scenario | GPUs | layouts | enumeration s | solve s | ratio | optimum |\n"
    "|---|--:|--:|--:|--:|--:|---|"
)


def line(row: Row) -> str:
    """One instance as a line of a Markdown table."""
    start = f"| {row.name} | {row.gpus:,} | {row.layouts:,.0f} "
    solve_s = "" if row.solve_s is None else f"{row.solve_s:.2f}"
    if row.enumeration_s is None:
        return f"{start}| not ended | {solve_s} | | |"
    assert row.solve_s is not None
    verdict = "same" if row.agrees else f"**{row.least} and {row.found} us**"
    ratio = row.enumeration_s / row.solve_s
    return f"{start}| {row.enumeration_s:.2f} | {solve_s} | {ratio:,.1f} | {verdict} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0, or 1 if an optimum differs."""
    parser = argparse.ArgumentParser(description="Hold the search to the enumeration.")
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path)
    parser.add_argument("--limit", metavar="S", type=float, default=600.0, help="of each, in s")
    parser.add_argument("--most", metavar="N", type=float, default=1e9, help="layouts, at most")
    json_option(parser, "all rows")
    given = parser.parse_args(arguments)
    return exit_code(lambda: _compare_all(given), yaml.YAMLError)


def _compare_all(given: argparse.Namespace) -> int:
    cases = [(name, data) for name, variant, data in variants(given.files) if variant == "free"]
    if not given.files:
        few = (one for one in instances() if size(one)[0] <= _GPUS)
        cases = [(one["name"], one) for one in sorted(few, key=size)]
    results = Results({"--json": given.json}, given.files)
    rows = []
    with results.printing():
        print(HEAD)
        for name, scenario in cases:
            rows.append(compared(name, scenario, given.most, given.limit))
            print(line(rows[-1]), flush=True)
    results.deliver("--json", lambda: dumps([asdict(row) for row in rows]))
    return 0 if all(row.agrees for row in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Whether meshplan refuses what megatron-core refuses, and nothing else.

It draws layouts, models and settings near the edges of rules, asks meshplan's catalogue and the
real package for their verdicts, and prints every disagreement with its arguments::

    python benchmarks/legality.py [--seed N] [--count N] [--jobs N] [--only INDEX] [--json PATH]

megatron-core runs in processes of its own, on the CPU; ``MESHPLAN_PEER_PYTHON`` names the Python of
an environment with the extra ``peer`` if the running one has not got it.  The exit code is 1 where
the two disagree, where less than a third of the triples are illegal, or, from 10,000 triples on,
where a rule that the package can be asked about was broken fewer than 20 times.

In the table, *broken* counts the triples that break the rule, *alone* those that break no other
one that the package can be asked about: there the whole verdict hangs on it.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a program
    sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from benchmarks.legality_compare import EXERCISED, NOT_EXERCISED, compare, query  # noqa: E402
from benchmarks.legality_draws import draw  # noqa: E402
from tests.peer.client import Peer  # noqa: E402

#: Least share of illegal triples, and least number of times that each rule is broken.
LEAST_ILLEGAL = 1 / 3
LEAST_BROKEN = 20
#: From this many triples on every rule must have been broken often enough.
COVERED_FROM = 10_000


@dataclass
class Tally:
    """What a run, or one process of it, has found."""

    triples: int = 0
    illegal: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    alone: Counter[str] = field(default_factory=Counter)
    stages: Counter[str] = field(default_factory=Counter)
    disagreements: list[tuple[int, str]] = field(default_factory=list)
    version: str = ""

    def add(self, other: Tally) -> None:
        """Add the findings of another process."""
        self.triples += other.triples
        self.illegal += other.illegal
        self.broken += other.broken
        self.alone += other.alone
        self.stages += other.stages
        self.disagreements += other.disagreements
        self.version = other.version


def tally(seed: int, indices: Iterable[int]) -> Tally:
    """Put these draws of a seed to both sides."""
    found = Tally()
    with Peer() as peer:
        found.version = peer.version
        for index in indices:
            verdicts = compare(draw(seed, index), peer)
            found.triples += 1
            found.illegal += verdicts.stage is not None
            found.broken.update(verdicts.broken)
            if len(verdicts.broken) == 1:
                found.alone.update(verdicts.broken)
            found.stages.update([verdicts.stage or "accepted"])
            if verdicts.disagreement is not None:
                found.disagreements.append((index, verdicts.disagreement))
    return found


def run(seed: int, count: int, jobs: int) -> Tally:
    """Put ``count`` draws to both sides, with ``jobs`` processes of megatron-core."""
    total = Tally()
    if jobs == 1:
        total.add(tally(seed, range(count)))
    else:
        with ProcessPoolExecutor(jobs) as pool:
            parts = [range(job, count, jobs) for job in range(jobs)]
            for part in pool.map(tally, [seed] * jobs, parts):
                total.add(part)
    total.disagreements.sort()
    return total


def report(found: Tally, seed: int) -> list[str]:
    """The tables, as lines of Markdown."""
    share = found.illegal / max(1, found.triples)
    lines = [
        f"megatron-core {found.version}, {found.triples} triples of seed {seed}: "
        f"{found.illegal} illegal ({share:.0%}), {len(found.disagreements)} disagreements.",
        "",
        "| rule | broken | alone |",
        "|---|---:|---:|",
        *(f"| {name} | {found.broken[name]} | {found.alone[name]} |" for name in EXERCISED),
        "",
        "| megatron-core refuses in | triples |",
        "|---|---:|",
        *(f"| {stage} | {count} |" for stage, count in found.stages.most_common()),
        "",
        "| rule that it cannot be asked about | why |",
        "|---|---|",
        *(f"| {name} | {why} |" for name, why in NOT_EXERCISED.items()),
    ]
    for index, text in found.disagreements:
        asked = query(draw(seed, index))
        lines += [
            "",
            f"DISAGREEMENT {index} (--seed {seed} --only {index}): {text}",
            f"    {asked['world']} GPUs: {shlex.join(asked['argv'])}",
        ]
    return lines


def faults(found: Tally) -> list[str]:
    """Why the run does not pass, as sentences."""
    said = []
    if found.disagreements:
        said.append(f"{len(found.disagreements)} disagreements")
    if found.illegal < LEAST_ILLEGAL * found.triples:
        said.append(f"only {found.illegal} of {found.triples} triples are illegal")
    if found.triples >= COVERED_FROM:
        said += [
            f"{name} was broken {found.broken[name]} times, fewer than {LEAST_BROKEN}"
            for name in EXERCISED
            if found.broken[name] < LEAST_BROKEN
        ]
    return said


def main(words: list[str] | None = None) -> int:
    """Run the comparison, print its tables; the exit code says whether it passes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="which triples are drawn")
    parser.add_argument("--count", type=int, default=20_000, help="how many")
    parser.add_argument("--jobs", type=int, default=2, help="processes of megatron-core")
    parser.add_argument("--only", type=int, help="number of the one triple to ask about")
    json_option(parser, "the figures")
    options = parser.parse_args(words)
    return exit_code(lambda: _compare(options))


def _compare(options: argparse.Namespace) -> int:
    results = Results({"--json": options.json})
    start = time.monotonic()
    if options.only is not None:
        found = tally(options.seed, [options.only])
        triple = draw(options.seed, options.only)
        print(f"{triple.layout}\naims: {triple.aims}; unreadable: {triple.unreadable}")
        print("\n".join(report(found, options.seed)))
        return int(bool(found.disagreements))
    found = run(options.seed, options.count, options.jobs)
    with results.printing():
        print("\n".join(report(found, options.seed)))
        print(f"\n{time.monotonic() - start:.0f} s with {options.jobs} processes")
    figures = {
        "megatron_core": found.version,
        "seed": options.seed,
        "triples": found.triples,
        "illegal": found.illegal,
        "broken": {name: found.broken[name] for name in EXERCISED},
        "alone": {name: found.alone[name] for name in EXERCISED},
        "disagreements": found.disagreements,
    }
    results.deliver("--json", lambda: dumps(figures))
    for text in faults(found):
        print(f"FAILED: {text}", file=sys.stderr)
    return int(bool(faults(found)))


if __name__ == "__main__":
    sys.exit(main())

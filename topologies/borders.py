"""Arithmetic of consecutive ranks cut into equal segments: the compressed topology.

Ranks are placed domain by domain, so every level of the topology (node, NVLink domain, leaf) cuts
the ranks ``0 .. gpus - 1`` into consecutive segments.  A group of ``n`` ranks with stride ``s``
lies in an *aligned block* of ``s * n`` consecutive ranks.  Everything that the solver asks is
therefore a question about which block contains the start of which segment.  Equal neighbours are
stored as one :class:`Run`, so a query costs time in the number of runs, not of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import groupby
from math import gcd


class Tier(IntEnum):
    """How far apart ranks are, from the narrowest to the widest link that joins them."""

    LOCAL = 0
    """One GPU talks to itself."""
    NODE = 1
    """NVLink inside a node."""
    DOMAIN = 2
    """NVLink across the nodes of one domain (multi-node NVLink)."""
    LEAF = 3
    """The network, under one leaf switch of the rail."""
    SPINE = 4
    """The network, through the spine."""


@dataclass(frozen=True)
class Run:
    """``count`` neighbouring segments of ``size`` ranks each, the first one at rank ``start``."""

    start: int
    size: int
    count: int

    def period(self, block: int) -> int:
        """Segments after which the offsets of their starts in blocks of ``block`` repeat."""
        return block // gcd(self.size, block)


def runs_of(sizes: Iterable[int]) -> tuple[Run, ...]:
    """Compress the sizes of consecutive segments into runs of equal neighbours."""
    runs: list[Run] = []
    start = 0
    for size, same in groupby(sizes):
        count = sum(1 for _ in same)
        runs.append(Run(start, size, count))
        start += size * count
    return tuple(runs)


def aligned(runs: Iterable[Run], block: int, inner: int | None = None) -> bool:
    """Whether every segment starts at a multiple of ``block``, so that no block crosses a border.

    With ``inner`` each segment is itself cut into pieces of ``inner`` ranks (nodes of a domain,
    the last may be smaller) and every piece must start at a multiple of ``block``.
    """
    for run in runs:
        if run.start % block or (run.count > 1 and run.size % block):
            return False
        if inner is not None and run.size > inner and inner % block:
            return False
    return True


def straddling_blocks(runs: Iterable[Run], block: int) -> int:
    """How many aligned blocks contain ranks of more than one segment."""
    total = 0
    before = 0
    for run in runs:
        # A start at offset r > 0 of a block makes it straddle.  Count the block at its first such
        # start only: the segment before (`before` or `run.size` ranks) then reaches back at least
        # to the beginning of the block.  The very first start is rank 0 and never counts.
        total += int(0 < run.start % block <= before)
        period = run.period(block)
        rest = run.count - 1
        hits = [
            0 < (run.start + run.size * k) % block <= run.size
            for k in range(1, min(rest, period) + 1)
        ]
        total += sum(hits) * (rest // period if rest > period else 1)
        if rest > period:
            total += sum(hits[: rest % period])
        before = run.size
    return total


def longest_piece(runs: Iterable[Run], block: int) -> int:
    """Length in ranks of the longest run of ranks that shares a segment *and* an aligned block."""
    longest = 0
    for run in runs:
        most = min(run.size, block)
        for k in range(min(run.count, run.period(block))):
            room = block - (run.start + run.size * k) % block
            longest = max(longest, min(run.size, room), min(block, run.size - room))
            if longest >= most:
                break
    return longest


def inner_starts(runs: Iterable[Run]) -> Iterator[int]:
    """First ranks of all segments except the one at rank 0, ascending."""
    for run in runs:
        for k in range(run.count):
            if start := run.start + run.size * k:
                yield start


def groups_without_border(runs: Iterable[Run], size: int, stride: int, groups: int) -> int:
    """How many of the ``groups`` strided groups (``size`` ranks, ``stride`` apart) cross no border.

    A straddling block can still hold whole groups if ``stride`` does not divide the segments, so
    this is not :func:`straddling_blocks` times ``stride``.  Takes time in the number of segments.
    """
    if size == 1:
        return groups
    block = size * stride
    reach = stride * (size - 1)
    crossing = 0
    current = -1
    done = 0  # offsets below `done` in the current block are already counted or cannot be hit
    for start in inner_starts(runs):
        index, at = divmod(start, block)
        if index != current:
            current, done = index, 0
        # The group at offset o crosses a border at `at` if o < at <= o + reach.  Both ends of
        # that interval grow with `at`, so the union over a block is counted left to right.
        low, high = max(done, at - reach), min(stride, at)
        crossing += max(0, high - low)
        done = max(done, high)
    return groups - crossing

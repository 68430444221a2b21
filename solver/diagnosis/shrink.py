"""Irreducible subsets of facts, one or all of them, from questions of what is possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

_Fact = TypeVar("_Fact")


def quickxplain(
    everything: Sequence[_Fact], possible: Callable[[Sequence[_Fact]], bool]
) -> frozenset[_Fact]:
    """Irreducible subset of facts that is impossible; empty if no fact at all is possible.

    Junker 2004; facts late in the sequence are kept rather than early ones.
    """

    def explain(background: list[_Fact], added: bool, candidates: list[_Fact]) -> list[_Fact]:
        if added and not possible(background):
            return []
        if len(candidates) == 1:
            return candidates
        half = len(candidates) // 2
        late, early = candidates[half:], candidates[:half]
        from_early = explain(background + late, bool(late), early)
        from_late = explain(background + from_early, bool(from_early), late)
        return from_early + from_late

    if not everything or not possible([]):
        return frozenset()
    return frozenset(explain([], False, list(everything)))


def every_core(
    everything: Sequence[_Fact], core: Callable[[Sequence[_Fact]], frozenset[_Fact] | None]
) -> Iterator[frozenset[_Fact]]:
    """All irreducible impossible subsets, one after the other.

    A set of facts that leaves out one member of each known core is possible, or holds another
    core.  When all such sets that are as large as can be are possible, no core is left (MARCO,
    Liffiton et al. 2016; the sets are the complements of the minimal hitting sets of the cores,
    which Berge's multiplication keeps).

    Parameters
    ----------
    everything
        The facts, in the order in which ties are broken: late ones are left out first.
    core
        An irreducible impossible subset of the facts that it is given, or None if they are
        possible.
    """
    place = {fact: index for index, fact in enumerate(everything)}
    hitting: list[frozenset[_Fact]] = [frozenset()]
    possible: set[frozenset[_Fact]] = set()

    def order(left_out: frozenset[_Fact]) -> tuple[int, list[int]]:
        return len(left_out), sorted(-place[fact] for fact in left_out)

    while True:
        open_ = [one for one in hitting if one not in possible]
        if not open_:
            return
        left_out = min(open_, key=order)
        found = core([fact for fact in everything if fact not in left_out])
        if found is None:
            possible.add(left_out)
            continue
        yield found
        if not found:  # impossible whatever is left out
            return
        hitting = _hitting_also(hitting, found)


def _hitting_also(
    hitting: list[frozenset[_Fact]], core: frozenset[_Fact]
) -> list[frozenset[_Fact]]:
    """Minimal sets that hit one core more."""
    kept = [one for one in hitting if one & core]
    wider = {one | {fact} for one in hitting if not one & core for fact in core}
    return kept + [one for one in wider if not any(old <= one for old in kept)]

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from meshplan.solver.diagnosis.shrink import every_core, quickxplain

#: Numbers of facts, and sets of them that cannot hold together.
CLASHES = st.lists(st.sets(st.integers(0, 7), min_size=1, max_size=4), min_size=1, max_size=4)


def _possible(forbidden: Iterable[frozenset[int]], kept: Iterable[int]) -> bool:
    return not any(clash <= set(kept) for clash in forbidden)


def _forbidden(count: int, clashes: list[set[int]]) -> list[frozenset[int]]:
    return [frozenset(clash) for clash in clashes if max(clash) < count]


def _irreducible(count: int, forbidden: list[frozenset[int]]) -> set[frozenset[int]]:
    """All irreducible sets, by trying all sets."""
    return {
        frozenset(some)
        for size in range(1, count + 1)
        for some in itertools.combinations(range(count), size)
        if not _possible(forbidden, some)
        and all(_possible(forbidden, set(some) - {fact}) for fact in some)
    }


@given(st.integers(1, 8), CLASHES)
def test_quickxplain_finds_an_irreducible_core(count: int, clashes: list[set[int]]) -> None:
    """Tests random monotone predicates: impossible if any of some sets of facts is all there."""
    forbidden = _forbidden(count, clashes)
    if not forbidden:
        return  # the procedure is only asked about what is impossible
    core = quickxplain(range(count), lambda kept: _possible(forbidden, kept))
    assert core in _irreducible(count, forbidden)


def test_quickxplain_of_what_no_fact_causes_is_empty() -> None:
    """Tests that where nothing is possible even without facts, none is blamed."""
    assert quickxplain(range(3), lambda kept: False) == frozenset()
    assert quickxplain([], lambda kept: False) == frozenset()


def test_quickxplain_keeps_late_facts() -> None:
    """Tests that of two cores the one with what a person can change, which is last, is kept."""
    forbidden = [frozenset({0, 1}), frozenset({2, 3})]
    assert quickxplain(range(4), lambda kept: _possible(forbidden, kept)) == {2, 3}


def test_quickxplain_asks_few_questions() -> None:
    """Tests two of 64 facts: at most 2*k*log2(n/k) + 2*k = 24 questions (Junker 2004)."""
    asked = []

    def possible(kept: Sequence[int]) -> bool:
        asked.append(len(kept))
        return _possible([frozenset({11, 50})], kept)

    assert quickxplain(range(64), possible) == {11, 50}
    assert len(asked) <= 25


@given(st.integers(1, 8), CLASHES)
def test_every_core_is_found_once(count: int, clashes: list[set[int]]) -> None:
    """Tests that the cores are all irreducible sets, each once, and the order always the same."""
    forbidden = _forbidden(count, clashes)

    def core(kept: Sequence[int]) -> frozenset[int] | None:
        if _possible(forbidden, kept):
            return None
        return quickxplain(kept, lambda some: _possible(forbidden, some))

    found = list(every_core(range(count), core))
    assert len(found) == len(set(found))
    assert set(found) == _irreducible(count, forbidden)
    assert list(every_core(range(count), core)) == found


def test_what_no_fact_causes_is_the_only_core() -> None:
    """Tests that where nothing is possible even without facts, the empty set is all there is."""
    assert list(every_core(range(3), lambda kept: frozenset())) == [frozenset()]

"""Hostlists: both directions, bounds, refusals."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.readers.hostlist import MAX_NAMES, expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ("n1",)),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[01-02,10]", ("n01", "n02", "n10")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("n[008-011]", ("n008", "n009", "n010", "n011")),
        ("a[1-2]b[1-2]", ("a1b1", "a1b2", "a2b1", "a2b2")),
        ("ip-0A[010006-010007]", ("ip-0A010006", "ip-0A010007")),
        ("gpu[1,3],login1", ("gpu1", "gpu3", "login1")),
        ("switch.1.[1-2]", ("switch.1.1", "switch.1.2")),
        ("[1101-1102]", ("1101", "1102")),
    ],
)
def test_expand(text: str, names: tuple[str, ...]) -> None:
    """Tests ranges, zeros in front, several brackets and lists."""
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,,b",
        "a,",
        "n[",
        "n[]",
        "n]",
        "n[1-2",
        "n[2-1]",
        "n[a-b]",
        "n[1-]",
        "n 1",
        "n" + "[1]" * 16,
    ],
)
def test_malformed_lists_are_refused(text: str) -> None:
    """Tests that the refusal names the list and its line."""
    with pytest.raises(TopologyFileError, match=r"hostlist|no name") as caught:
        expand(text, 7)
    assert caught.value.line == 7


@pytest.mark.parametrize(
    "text", ["n[1-1000000]", "n[1-999999999999]", "n[1-1000][1-1000]", "n" + "[1-9]" * 15]
)
def test_huge_lists_are_refused_before_they_are_made(text: str) -> None:
    """Tests that a list of a million names and more costs no memory: 32 MiB is far below it."""
    tracemalloc.start()
    with pytest.raises(TopologyFileError, match="more than 262,144 names"):
        expand(text)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


def test_the_largest_list_is_read() -> None:
    """Tests that a list of as many names as a file may hold is read."""
    assert len(expand(f"n[1-{MAX_NAMES}]")) == MAX_NAMES


names = st.from_regex(r"[a-z]{0,3}(-?[0-9]{1,3}){1,2}|[a-z]{1,4}", fullmatch=True)


@given(st.lists(names, min_size=1, max_size=30))
def test_fold_is_undone_by_expand(listed: list[str]) -> None:
    """Tests that any names come back in the same order."""
    assert expand(fold(listed)) == tuple(listed)


@given(st.integers(0, 1200), st.integers(1, 300), st.integers(0, 4))
def test_runs_fold_into_one_range(first: int, count: int, width: int) -> None:
    """Tests that numbered nodes come back, and are short where their width is the same."""
    listed = [f"n{number:0{width}d}" for number in range(first, first + count)]
    text = fold(listed)
    assert expand(text) == tuple(listed)
    assert text.count(",") <= 1  # at most one place where zeros in front end

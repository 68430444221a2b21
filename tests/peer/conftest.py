"""The process that asks megatron-core, shared by all tests that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.peer.client import Peer


@pytest.fixture(scope="session")
def peer() -> Iterator[Peer]:
    """The installed megatron-core; fails with advice where there is none."""
    with Peer() as started:
        yield started

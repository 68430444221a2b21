"""Verdicts on whole layouts: meshplan's catalogue against the installed megatron-core."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.legality import LEAST_ILLEGAL, faults, tally
from benchmarks.legality_compare import compare, query
from benchmarks.legality_draws import Draft, draw, finish
from tests.peer.client import Peer

pytestmark = pytest.mark.peer

#: Seed of the fixed draws, and their number; the benchmark takes tens of thousands.
SEED, COUNT = 2026, 600


def test_the_release_is_the_one_that_the_rules_describe(peer: Peer) -> None:
    """Tests that it is megatron-core 0.19, whose checks the catalogue is held to."""
    assert peer.version.startswith("0.19.")


def test_fixed_draws_agree() -> None:
    """Tests that 600 draws near the edges of rules get one verdict, a third of them a refusal."""
    found = tally(SEED, range(COUNT))
    assert faults(found) == []
    assert found.disagreements == []
    assert found.illegal >= LEAST_ILLEGAL * found.triples
    assert found.triples == COUNT


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(index=st.integers(0, 10**9), seed=st.integers(0, 10**6))
def test_any_draw_agrees(peer: Peer, seed: int, index: int) -> None:
    """Tests draws of any seed, others in each run of the dev profile."""
    triple = draw(seed, index)
    assert compare(triple, peer).disagreement is None, query(triple)["argv"]


def _ask(peer: Peer, draft: Draft) -> tuple[tuple[str, ...], str | None]:
    triple = finish(draft, random.Random(0), ())
    assert triple is not None
    verdicts = compare(triple, peer)
    assert verdicts.disagreement is None
    return verdicts.broken, verdicts.stage


def test_ep_may_exceed_dp(peer: Peer) -> None:
    """Tests that megatron-core has no such rule as EP <= DP: ep 8 folds over cp 8, dp is 1."""
    draft = Draft("qwen3-30b-a3b", degrees={"cp": 8, "ep": 8}, text="Et*48L")
    assert _ask(peer, draft) == ((), None)


def test_product_of_all_degrees_may_exceed_the_gpus(peer: Peer) -> None:
    """Tests that tp*cp*ep*pp = 2*2*4*2 = 32 runs on 8 GPUs."""
    draft = Draft("qwen3-30b-a3b", degrees={"tp": 2, "cp": 2, "ep": 4, "pp": 2}, gpus=8)
    assert _ask(peer, draft) == ((), None)


def test_dp_need_not_be_a_power_of_two(peer: Peer) -> None:
    """Tests that dp = 3 and ep = 6 are as good as any on 6 GPUs."""
    draft = Draft("toy-moe", changes={"experts": 12}, degrees={"tp": 2, "ep": 6}, gpus=6)
    assert _ask(peer, draft) == ((), None)


def test_micro_batches_need_not_be_a_multiple_of_all_stages(peer: Peer) -> None:
    """Tests that ga = 6 is no multiple of pp*vpp = 2*2 and runs: it is one of pp."""
    draft = Draft("toy-dense", degrees={"pp": 2, "vpp": 2}, ga=6)
    assert _ask(peer, draft) == ((), None)


def test_plain_schedule_takes_fewer_micro_batches_than_stages(peer: Peer) -> None:
    """Tests that 1F1B without virtual stages runs one micro-batch through four stages."""
    assert _ask(peer, Draft("toy-dense", degrees={"pp": 4})) == ((), None)


def test_interleaved_schedule_does_not(peer: Peer) -> None:
    """Tests that the schedule itself refuses fewer micro-batches than its group, pp."""
    draft = Draft("toy-dense", degrees={"pp": 2, "vpp": 2}, ga=1)
    assert _ask(peer, draft) == (("interleaved-ga-ge-group",), "schedule")


def test_expert_grid_is_refused_when_groups_are_built(peer: Peer) -> None:
    """Tests the fault that no argument check sees: etp*ep*pp = 2*8*2 = 32 on 16 GPUs."""
    draft = Draft(
        "qwen3-30b-a3b", degrees={"tp": 2, "etp": 2, "ep": 8, "pp": 2}, gpus=16, seq_len=4096
    )
    assert _ask(peer, draft) == (("world-expert-divisible",), "mesh")

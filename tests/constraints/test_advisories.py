"""Advisories: each speaks with the layout's numbers where it should, and is silent beside."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from meshplan.constraints.advisories import ALL_ADVISORIES
from meshplan.constraints.layout import Layout
from meshplan.constraints.memory.stage import Event, RankMemory
from meshplan.constraints.problem import QUANTA_PER_GIB, Problem
from tests.constraints.factories import problem

CHECKS = {one.id: one.finds for one in ALL_ADVISORIES}

#: DeepSeek-V3 at 128K on 256 H100 and the layout family published for it.
DEEPSEEK = problem("deepseek-v3", gpus=256, seq_len=131072, precision="fp8-block")
FAMILY = Layout(
    cp=32, pp=8, vpp=4, dp=1, ep=32, edp=1, ga=256, gbs=256, dispatcher="deepep", offload=100
)
SHORT = problem("deepseek-v3", gpus=256, seq_len=4096, precision="fp8-block")
SHORT_FAMILY = replace(FAMILY, cp=1, dp=32, ga=64, gbs=2048)


def memory(rank: int, *, optimizer: float = 0, activations: float = 0) -> RankMemory:
    """A rank with these GiB."""
    return RankMemory(
        rank=rank,
        weights=0,
        gradients=0,
        optimizer=int(optimizer * QUANTA_PER_GIB),
        overhead=0,
        outside=0,
        events=(Event("backward", activations=int(activations * QUANTA_PER_GIB)),),
    )


def advice(
    advisory: str, where: Problem, what: Layout, ranks: tuple[RankMemory, ...] = ()
) -> str | None:
    """What the advisory says."""
    return CHECKS[advisory](where, what, ranks)


def test_meshes_that_do_not_cover_the_cluster_get_no_advice() -> None:
    """Tests that nothing is said of 8 * 32 = 256 ranks on 128 or 512 GPUs, in either mesh."""
    by_id = {one.id: one for one in ALL_ADVISORIES}
    floor = by_id["dp-floor"]
    assert floor.check(DEEPSEEK, FAMILY, ()) is not None
    assert floor.check(DEEPSEEK, replace(FAMILY, dp=2), ()) is None  # 512 in the attention mesh
    assert floor.check(DEEPSEEK, replace(FAMILY, edp=2), ()) is None  # 512 in the expert mesh
    for gpus in (128, 512):
        where = problem("deepseek-v3", gpus=gpus, seq_len=131072)
        assert all(one.check(where, FAMILY, ()) is None for one in ALL_ADVISORIES)


def test_ids_are_those_promised() -> None:
    """Tests that the fourteen advisories exist under their names, each with reason and source."""
    assert [one.id for one in ALL_ADVISORIES] == [
        "idle-setting",
        "beyond-calibration",
        "cp-shard-target",
        "dp-floor",
        "prefer-selective-recompute",
        "avoid-attention-recompute-at-long-context",
        "trade-cp-for-tp-in-nvlink-domain",
        "batch-shrinks",
        "short-context-baseline",
        "gpu-count-wall",
        "graphs-need-static-shapes",
        "long-context-software",
        "dispatcher-choice",
        "optimizer-offload-at-long-context",
        "poor-segment",
    ]
    assert all(one.why.endswith(".") and one.source for one in ALL_ADVISORIES)


def test_a_plain_short_run_needs_no_advice() -> None:
    """Tests that the published 4K layout of DeepSeek-V3 hears nothing at all."""
    ranks = tuple(memory(rank, activations=40) for rank in range(8))
    said = {one.id: one.check(SHORT, SHORT_FAMILY, ranks) for one in ALL_ADVISORIES}
    assert {key: text for key, text in said.items() if text} == {}


@pytest.mark.parametrize("what", [Layout(), FAMILY, replace(FAMILY, recompute_full=True)])
@pytest.mark.parametrize(
    "where",
    [problem(gpus=1), DEEPSEEK, problem("toy-dense", variable_length=True, seq_len=262144)],
    ids=["one-gpu", "deepseek", "dense"],
)
def test_advice_needs_no_memory_and_is_one_sentence(where: Problem, what: Layout) -> None:
    """Tests that every check works without ranks, and that its text is one plain line."""
    for one in ALL_ADVISORIES:
        text = one.finds(where, what, ())
        if text is not None:
            assert re.search(r"\d|true", text)
            assert "\n" not in text and not text.endswith(".")


def test_shard_target() -> None:
    """Tests that cp = 8 at 128K leaves 16,384 tokens, and that 4,096 would be cp = 32."""
    assert advice("cp-shard-target", DEEPSEEK, FAMILY) is None
    text = advice("cp-shard-target", DEEPSEEK, replace(FAMILY, cp=8))
    assert text is not None
    assert text.startswith("cp = 8 leaves 16,384 of 131,072 tokens on a rank")
    assert "about 4,096, which is cp = 32" in text
    too_small = advice("cp-shard-target", SHORT, replace(SHORT_FAMILY, cp=4))
    assert too_small is not None and "1,024 of 4,096" in too_small


@pytest.mark.parametrize(("tp", "cp"), [(32, 1), (4, 8), (4, 4), (8, 8)])
def test_sequence_parallelism_counts_as_a_shard(tp: int, cp: int) -> None:
    """Tests that tp*cp from 16 to 64 at 128K, within twice of 4,096 tokens a rank, is fine."""
    assert advice("cp-shard-target", DEEPSEEK, replace(FAMILY, tp=tp, cp=cp)) is None


def test_shards_of_both_kinds_are_told_together() -> None:
    """Tests tp = 2, cp = 4 at 128K: 131,072/8 = 16,384 tokens, and tp = 4, cp = 64: 512."""
    text = advice("cp-shard-target", DEEPSEEK, replace(FAMILY, tp=2, cp=4))
    assert text is not None
    assert "cp = 4 and sequence parallelism over tp = 2 leave 16,384 of 131,072" in text
    assert text.endswith("about 4,096, which is tp*cp = 32")
    text = advice("cp-shard-target", DEEPSEEK, replace(FAMILY, tp=4, cp=64))
    assert text is not None and "leave 512 of" in text


def test_dp_floor() -> None:
    """Tests that dp = 1 on 256 GPUs says that the next doubling needs 512; dp = 4 is fine."""
    text = advice("dp-floor", DEEPSEEK, FAMILY)
    assert text is not None
    assert "dp = 1" in text and "256 of 256 GPUs" in text and "512 GPUs" in text
    assert text.endswith("more than there are")
    assert advice("dp-floor", DEEPSEEK, replace(FAMILY, cp=8, dp=4)) is None


def test_full_recompute() -> None:
    """Tests that full recompute gets the modules that suit the model, and its peak."""
    full = replace(FAMILY, recompute_full=True)
    text = advice("prefer-selective-recompute", DEEPSEEK, full, (memory(0, activations=50),))
    assert text is not None
    assert "[mla_up_proj, layernorm, moe_act, mlp]" in text
    assert "50.0 of 72.8 GiB" in text  # 79.1 GiB less 8 % headroom
    qwen = advice("prefer-selective-recompute", problem("qwen3-30b-a3b"), full)
    assert qwen is not None and "[layernorm, moe_act]" in qwen
    assert advice("prefer-selective-recompute", DEEPSEEK, FAMILY) is None


def test_attention_recompute() -> None:
    """Tests that core attention, 81 % of DeepSeek-V3's FLOPs at 128K, is not recomputed."""
    key = "avoid-attention-recompute-at-long-context"
    text = advice(key, DEEPSEEK, replace(FAMILY, recompute=("core_attn",)))
    assert text is not None and "81% of the model FLOPs" in text and "core_attn" in text
    assert advice(key, DEEPSEEK, replace(FAMILY, recompute=("moe",))) is None
    assert advice(key, SHORT, replace(SHORT_FAMILY, recompute=("core_attn",))) is None


def test_trade_cp_for_tp() -> None:
    """Tests that cp = 32 on nodes of 8 may become tp = 8, cp = 4; an NVL72 rack holds it."""
    key = "trade-cp-for-tp-in-nvlink-domain"
    text = advice(key, DEEPSEEK, FAMILY)
    assert text is not None
    assert "tp*cp = 1*32 = 32" in text and "tp = 8, cp = 4" in text
    rack = problem("deepseek-v3", "gb200-nvl72", gpus=256, seq_len=131072)
    assert advice(key, rack, FAMILY) is None
    assert advice(key, DEEPSEEK, replace(FAMILY, tp=8, cp=4)) is None


def test_trade_obeys_the_rules() -> None:
    """Tests that a model of 2 KV heads on megatron-core 0.15 is offered tp = 2, not 8."""
    where = problem("qwen3-next-80b-a3b", gpus=64, seq_len=65536, version=(0, 15))
    text = advice("trade-cp-for-tp-in-nvlink-domain", where, Layout(cp=16, pp=4))
    assert text is not None and "tp = 2, cp = 8" in text


def test_batch_that_feeds_the_pipeline_needs_no_word() -> None:
    """Tests 128K with 256 sequences a rank (bubble 7/1024), and bubbles up to 5 %: 7/140."""
    assert advice("batch-shrinks", DEEPSEEK, FAMILY) is None
    assert advice("batch-shrinks", SHORT, SHORT_FAMILY) is None
    assert advice("batch-shrinks", SHORT, replace(SHORT_FAMILY, vpp=1, ga=140)) is None
    assert advice("batch-shrinks", SHORT, replace(SHORT_FAMILY, vpp=1, ga=139)) is not None


def test_large_bubble_says_which_batch_it_takes() -> None:
    """Tests a bubble of 7/8: ga = 7/0.05 = 140, times dp = 32; with vpp = 4 it is 35, so 40."""
    few = advice("batch-shrinks", SHORT, replace(SHORT_FAMILY, vpp=1, ga=8, gbs=256))
    assert few is not None
    assert "gbs = 256 leaves ga = 8 micro-batches on each of dp = 32 ranks" in few
    assert "7/(1*8) is 87.5%" in few
    assert "5% or less takes ga = 140, which is gbs = 4,480" in few
    few = advice("batch-shrinks", SHORT, replace(SHORT_FAMILY, ga=8, gbs=256))
    assert few is not None and "ga = 40, which is gbs = 1,280" in few  # groups of pp = 8


def test_long_sequences_shrink_the_batch() -> None:
    """Tests that two sequences of 128K a rank are few, 33.6 M tokens in all; four are not."""
    few = replace(FAMILY, cp=1, pp=1, vpp=1, dp=128, ga=2)
    text = advice("batch-shrinks", DEEPSEEK, few)
    assert text is not None
    assert "only 2 sequences of 131,072 tokens on each of dp = 128 ranks (33.6 M tokens" in text
    assert advice("batch-shrinks", DEEPSEEK, replace(few, mbs=2)) is None
    short = problem("deepseek-v3", gpus=256, seq_len=16384)
    assert advice("batch-shrinks", short, few) is None


def test_short_context_baseline() -> None:
    """Tests that the 4K layout at 128K is told that it keeps 32 times the tokens."""
    text = advice("short-context-baseline", DEEPSEEK, SHORT_FAMILY, (memory(3, activations=400),))
    assert text is not None
    assert "131,072 tokens on a rank, 32 times" in text
    assert "rank (3) peaks at 400.0 of 72.8 GiB" in text
    assert advice("short-context-baseline", DEEPSEEK, FAMILY) is None
    assert advice("short-context-baseline", DEEPSEEK, replace(FAMILY, tp=32, cp=1)) is None


def test_gpu_count_wall() -> None:
    """Tests that the least cluster is pp times the larger mesh: 256, and 512 at 256K."""
    ranks = tuple(memory(rank, activations=60) for rank in range(8))
    text = advice("gpu-count-wall", DEEPSEEK, FAMILY, ranks)
    assert text is not None
    assert "8*max(32, 32) = 256 GPUs" in text
    assert "at 262,144 tokens with the same shard it needs 512" in text
    assert "480.0 GiB" in text and "no fewer than 7 stages of 72.8 GiB" in text  # 480 / 72.8 = 6.6
    assert advice("gpu-count-wall", DEEPSEEK, replace(FAMILY, cp=16, dp=2)) is None


def test_graphs_and_variable_length() -> None:
    """Tests that a run that cannot capture graphs is told why; a captured one is a rule's job."""
    varying = problem(variable_length=True)
    text = advice("graphs-need-static-shapes", varying, Layout())
    assert text is not None and "variable_length is true" in text and "4,096" in text
    assert advice("graphs-need-static-shapes", varying, Layout(cuda_graphs=("attn",))) is None
    assert advice("graphs-need-static-shapes", problem(), Layout()) is None


def test_long_context_software() -> None:
    """Tests that a full mask of 128K tokens is 2^34 bytes = 16 GiB, and names the versions."""
    text = advice("long-context-software", DEEPSEEK, replace(FAMILY, cp_comm="a2a+p2p"))
    assert text is not None
    assert "16 GiB" in text and "megatron-core 0.19" in text and "Engine 1.12" in text
    assert advice("long-context-software", problem(seq_len=65536), Layout(cp=16)) is None


def test_dispatcher() -> None:
    """Tests DeepEP on HGX, HybridEP in a rack, and alltoall as the fallback."""
    key = "dispatcher-choice"
    assert advice(key, DEEPSEEK, FAMILY) is None
    text = advice(key, DEEPSEEK, replace(FAMILY, dispatcher="alltoall"))
    assert text is not None and "4 nodes of 8 GPUs" in text and "deepep" in text
    assert "topk = 8 times" in text
    wide = advice(key, DEEPSEEK, replace(FAMILY, dispatcher="hybridep"))
    assert wide is not None and "deepep is the tuned dispatcher" in wide
    assert advice(key, DEEPSEEK, replace(FAMILY, ep=8, dispatcher="hybridep")) is None
    rack = problem("deepseek-v3", "gb200-nvl72", gpus=256, seq_len=131072)
    assert advice(key, rack, replace(FAMILY, dispatcher="hybridep")) is None
    text = advice(key, rack, replace(FAMILY, dispatcher="alltoall"))
    assert text is not None and "hybridep sends a token once" in text
    assert advice(key, rack, replace(FAMILY, ep=128, dispatcher="alltoall")) is None
    assert advice(key, problem("toy-dense"), Layout()) is None


def test_optimizer_offload() -> None:
    """Tests that a tight long run is told how much state could move; a roomy one is not."""
    key = "optimizer-offload-at-long-context"
    kept = replace(FAMILY, offload=0)
    tight = (memory(0, optimizer=20, activations=45), memory(1, optimizer=10))
    text = advice(key, DEEPSEEK, kept, tight)
    assert text is not None
    assert "rank 0 peaks at 65.0 of 72.8 GiB, 20.0 GiB of it" in text
    assert "dp*cp = 32 and edp = 1" in text
    assert advice(key, DEEPSEEK, kept, (memory(0, optimizer=20, activations=30),)) is None
    assert advice(key, DEEPSEEK, FAMILY, tight) is None
    assert advice(key, SHORT, kept, tight) is None


def test_poor_segments() -> None:
    """Tests 38 nodes, the 64 of whole racks, one rack, and HGX nodes, which need no segment."""
    key = "poor-segment"
    racks = problem("toy-moe", "gb200-nvl72", gpus=152)
    text = advice(key, racks, Layout(dp=152, edp=152))
    assert text is not None and text.startswith("38 nodes divide into segments of 2 at most; 36")
    for domains in ((64,) * 4, (72,)):
        good = problem("toy-moe", "gb200-nvl72", domains=domains)
        assert advice(key, good, Layout(dp=sum(domains), edp=sum(domains))) is None
    nodes = problem("toy-moe", gpus=38 * 8)
    assert advice(key, nodes, Layout(dp=304, edp=304)) is None

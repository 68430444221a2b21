"""Rules on what degrees divide, each as a triple: holds, is violated, a neighbour holds."""

from __future__ import annotations

from meshplan.constraints.rules import rule
from tests.constraints.factories import assert_triple, card, problem


def test_heads() -> None:
    """Tests that 8 heads split over 4 and 8 ranks, not over 3."""
    assert_triple(
        "heads-tp",
        problem(),
        good=(4,),
        bad=(3,),
        neighbour=(8,),
        says=("heads = 8", "tp = 3 (remainder 2)", "2 or 4"),
    )


def test_kv_heads_replicate_since_0_16() -> None:
    """Tests that 4 KV heads serve 8 ranks (each twice), but not 6."""
    assert_triple(
        "kv-groups-tp",
        problem(),
        good=(8,),
        bad=(6,),
        neighbour=(4,),
        says=("kv_groups = 4", "tp = 6", "4 divides it"),
    )


def test_kv_heads_do_not_replicate_before_0_16() -> None:
    """Tests that megatron-core 0.15 refuses tp = 8 with 4 KV heads and says which release can."""
    assert_triple(
        "kv-groups-tp",
        problem(version=(0, 15)),
        good=(4,),
        bad=(8,),
        neighbour=(2,),
        says=("kv_groups = 4", "tp = 8", "megatron-core 0.15", "0.16 can"),
    )


def test_mla_has_a_kv_head_for_each_query_head() -> None:
    """Tests that MLA is judged by its 128 heads."""
    assert rule("kv-groups-tp").holds(problem("deepseek-v3", version=(0, 15)), 128)


def test_fused_qkv_width() -> None:
    """Tests that (6 + 2*1)*128 = 1024 columns do not split over 3 ranks, though heads do."""
    where = problem(card("toy-moe", heads=6, kv_groups=1))
    assert rule("heads-tp").holds(where, 3) and rule("kv-groups-tp").holds(where, 3)
    assert_triple(
        "qkv-out-tp", where, good=(2,), bad=(3,), neighbour=(1,), says=("1024", "tp = 3", "2 or 4")
    )
    assert not rule("qkv-out-tp").applies(problem("deepseek-v3"))


def test_gated_attention_doubles_the_queries() -> None:
    """Tests that Qwen3-Next's output gate counts: (2*16 + 2*2)*256 = 9216 = 9*1024."""
    assert rule("qkv-out-tp").holds(problem("qwen3-next-80b-a3b"), 9)


def test_dense_ffn() -> None:
    """Tests that 53248 = 13*4096 splits over 13 ranks and not over 3."""
    assert_triple(
        "ffn-tp",
        problem("llama-3.1-405b"),
        good=(8,),
        bad=(3,),
        neighbour=(13,),
        says=("ffn = 53248", "tp = 3 (remainder 1)", "2 or 4"),
    )
    assert not rule("ffn-tp").applies(problem("qwen3-30b-a3b"))


def test_expert_ffn() -> None:
    """Tests that experts of width 1408 split over 11 ranks and not over 3."""
    assert_triple(
        "moe-ffn-etp",
        problem("moonlight-16b-a3b"),
        good=(2,),
        bad=(3,),
        neighbour=(11,),
        says=("moe_ffn = 1408", "etp = 3"),
    )


def test_shared_expert_ffn() -> None:
    """Tests that shared experts follow tp, not etp."""
    assert rule("shared-ffn-tp").scope == ("tp",)
    assert_triple(
        "shared-ffn-tp",
        problem("moonlight-16b-a3b"),
        good=(2,),
        bad=(3,),
        neighbour=(4,),
        says=("shared_ffn = 2816", "tp = 3"),
    )
    assert not rule("shared-ffn-tp").applies(problem("qwen3-30b-a3b"))


def test_gated_delta_net_heads() -> None:
    """Tests that Qwen3-Next's 16 key heads allow cp16, not tp2 cp16."""
    assert_triple(
        "gdn-heads-tpcp",
        problem("qwen3-next-80b-a3b", "gb200-nvl72", gpus=32, seq_len=65536),
        good=(1, 16),
        bad=(2, 16),
        neighbour=(2, 8),
        says=("16 key and 32 value heads", "tp*cp = 2*16 = 32", "16 would"),
    )


def test_sequence_parallel_shards() -> None:
    """Tests that 4100 tokens do not split over tp*cp = 8, but do over cp alone and over 4."""
    assert_triple(
        "sp-seq-divisible",
        problem(seq_len=4100),
        good=(1, 2),
        bad=(4, 2),
        neighbour=(2, 2),
        says=("seq_len = 4100", "cp*tp = 2*4 = 8", "remainder 4"),
    )


def test_sequence_splits_in_two_chunks_a_rank() -> None:
    """Tests that 24576 = 3*2^13 tokens allow cp = 3 and 6 and refuse cp = 5."""
    assert_triple(
        "seq-2cp",
        problem(seq_len=24576),
        good=(6,),
        bad=(5,),
        neighbour=(3,),
        says=("seq_len = 24576", "2*cp = 2*5 = 10 (remainder 6)", "4 or 6"),
    )


def test_odd_sequences_are_legal_without_cp() -> None:
    """Tests that cp = 1 asks nothing of the sequence."""
    assert rule("seq-2cp").holds(problem(seq_len=4097), 1)
    assert "cp = 1 would do" in rule("seq-2cp").explain(problem(seq_len=4097), 2)


def test_fp8_tokens() -> None:
    """Tests that 36 tokens a rank are no multiple of 8, and that mbs = 2 mends it."""
    assert_triple(
        "fp8-token-align",
        problem(seq_len=288, precision="fp8-block"),
        good=(1, 1, 1),
        bad=(4, 2, 1),
        neighbour=(4, 2, 2),
        says=("288*1/(2*4) = 36", "multiple of 8", "fp8-block"),
    )
    assert not rule("fp8-token-align").applies(problem())


def test_mxfp8_tokens() -> None:
    """Tests that 48 tokens a rank are no multiple of 32."""
    assert_triple(
        "mxfp8-token-align",
        problem(seq_len=384, precision="mxfp8"),
        good=(2, 2, 1),
        bad=(4, 2, 1),
        neighbour=(4, 2, 2),
        says=("384*1/(2*4) = 48", "multiple of 32"),
    )


def test_fp8_widths() -> None:
    """Tests that 11264/11 = 1024 suits fp8 and 16*128/256 = 8 does not."""
    where = problem("moonlight-16b-a3b", precision="fp8-current")
    assert_triple(
        "fp8-width-align",
        where,
        good=(4,),
        bad=(256,),
        neighbour=(16,),
        says=("attention output width per rank 2048/256 = 8", "16"),
    )


def test_mxfp8_expert_widths() -> None:
    """Tests that GPT-OSS's 2880/4 = 720 is no multiple of 32, but 2880/2 = 45*32 is."""
    assert_triple(
        "mxfp8-expert-width-align",
        problem("gpt-oss-120b", precision="mxfp8"),
        good=(1,),
        bad=(4,),
        neighbour=(2,),
        says=("2880/4 = 720", "32"),
    )
    assert rule("fp8-expert-width-align").holds(problem("gpt-oss-120b"), 4)  # 720 = 45*16

"""Rules on meshes and the batch, each as a triple: holds, is violated, a neighbour holds."""

from __future__ import annotations

from meshplan.constraints.problem import Limits
from meshplan.constraints.rules import rule
from tests.constraints.factories import assert_triple, problem


def test_attention_mesh_covers_the_cluster() -> None:
    """Tests that cp64 x pp8 on 256 GPUs is refused with the least GPU count, 512."""
    assert_triple(
        "world-dense-divisible",
        problem("deepseek-v3", gpus=256),
        good=(1, 32, 8, 1),
        bad=(1, 64, 8, 1),
        neighbour=(1, 64, 4, 1),
        says=("tp*cp*pp = 1*64*8 = 512", "needs at least 512 GPUs, the cluster has 256"),
    )


def test_attention_mesh_divides_the_cluster() -> None:
    """Tests that 24 GPUs a replica do not fit 256, and which counts would: 240 or 264."""
    assert_triple(
        "world-dense-divisible",
        problem(gpus=256),
        good=(2, 4, 4, 8),
        bad=(2, 3, 4, 10),
        neighbour=(1, 4, 4, 16),
        says=("2*3*4 = 24 does not divide 256 GPUs", "240 or 264 GPUs"),
    )


def test_attention_mesh_decides_dp() -> None:
    """Tests that a dp other than what is left is named with what it would need."""
    assert_triple(
        "world-dense-divisible",
        problem(gpus=64),
        good=(2, 1, 4, 8),
        bad=(2, 1, 4, 4),
        neighbour=(4, 1, 4, 4),
        says=("leaves dp = 8 on 64 GPUs, but dp is 4, which makes 32 GPUs",),
    )


def test_expert_mesh_fits_with_etp_1() -> None:
    """Tests the classic: etp left at tp = 4 makes 512 of 128 GPUs, etp = 1 fits."""
    assert_triple(
        "world-expert-divisible",
        problem("qwen3-235b-a22b", "gb200-nvl72", gpus=128),
        good=(1, 32, 4, 1),
        bad=(4, 32, 4, 1),
        neighbour=(1, 16, 4, 2),
        says=(
            "expert grid etp*ep*pp = 4*32*4 = 512",
            "the cluster has 128",
            "with etp = 1 it is 128 and fits",
        ),
    )


def test_expert_mesh_fits_with_smaller_ep() -> None:
    """Tests that the largest smaller ep that divides experts and GPUs is offered."""
    assert_triple(
        "world-expert-divisible",
        problem(gpus=8),
        good=(1, 4, 2, 1),
        bad=(1, 8, 2, 1),
        neighbour=(1, 8, 1, 1),
        says=("1*8*2 = 16 needs at least 16 GPUs, the cluster has 8", "with ep = 4 it is 8"),
    )


def test_expert_mesh_decides_edp() -> None:
    """Tests that edp = 2 at 512 GPUs follows from ep32 x pp8."""
    where = problem("deepseek-v3", gpus=512)
    one = rule("world-expert-divisible")
    assert one.holds(where, 1, 32, 8, 2)
    assert not one.holds(where, 1, 32, 8, 1)
    assert "leaves edp = 2 on 512 GPUs, but edp is 1" in one.explain(where, 1, 32, 8, 1)


def test_global_batch_is_made_of_micro_batches() -> None:
    """Tests that 256 sequences do not split over 14 a step, but 252 and 266 do."""
    assert_triple(
        "gbs-divisible",
        problem(),
        good=(252, 2, 7, 18),
        bad=(256, 2, 7, 18),
        neighbour=(256, 2, 8, 16),
        says=("gbs = 256 is not a multiple of mbs*dp = 2*7 = 14 (remainder 4)", "252 or 266"),
    )


def test_global_batch_decides_ga() -> None:
    """Tests that a stated ga must be the quotient."""
    one = rule("gbs-divisible")
    assert "makes ga = 16, but ga is 8, which makes gbs = 128" in one.explain(
        problem(), 256, 1, 16, 8
    )


def test_least_dp_of_the_scenario() -> None:
    """Tests that limits.min_dp = 2 refuses dp = 1 and lets dp = 3 pass."""
    assert_triple(
        "min-dp",
        problem(limits=Limits(min_dp=2)),
        good=(2,),
        bad=(1,),
        neighbour=(3,),
        says=("dp = 1", "limits.min_dp = 2"),
    )
    assert not rule("min-dp").applies(problem())

from __future__ import annotations

from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import parse_layout
from meshplan.constraints.terms import evaluate
from meshplan.solver.time.ends import loss_us, mtp_projection_us
from meshplan.solver.time.step import layer_us, slot_us, step_time
from tests.constraints.factories import problem

WHERE = problem("deepseek-v3", gpus=256)


def _layout(text: str) -> Layout:
    return Layout(pp=8, vpp=4, cp=1, dp=32, ep=8, edp=4, ga=256, gbs=8192, slots=parse_layout(text))


def test_the_last_slot_computes_the_losses_of_mtp_layers() -> None:
    """Tests `m|L`: the MTP slot has a layer and its projection, the last slot two losses.

    megatron-core computes the MTP loss where the output layer is (``process_mtp_loss``).
    """
    layout = _layout("Et*3|(tt|)*29m|L")
    loss = evaluate(loss_us, WHERE, layout)
    layer = layer_us(WHERE, layout, WHERE.model.mtp_kind)
    projection = evaluate(mtp_projection_us, WHERE, layout)
    assert slot_us(WHERE, layout, layout.slots[-1]) == 2 * loss
    assert slot_us(WHERE, layout, layout.slots[-2]) == layer + projection


def test_mtp_beside_the_loss_takes_both() -> None:
    """Tests that the two slots together take what one slot with both does."""
    apart, beside = _layout("Et*3|(tt|)*29m|L"), _layout("Et|(tt|)*30mL")
    both = sum(slot_us(WHERE, apart, slot) for slot in apart.slots[-2:])
    assert slot_us(WHERE, beside, beside.slots[-1]) == both
    assert step_time(WHERE, apart).slot_us < step_time(WHERE, beside).slot_us

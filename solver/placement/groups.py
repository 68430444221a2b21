"""Size and stride of each kind of group of a layout, in ranks."""

from __future__ import annotations

from meshplan.constraints.layout import Layout


def group_strides(layout: Layout) -> dict[str, tuple[int, int]]:
    """``kind -> (size, stride)``: a group's ranks are so many, so far apart.

    For the order ``tp-cp-ep-dp-pp``.  Source: Megatron-LM ``core/parallel_state.py``.
    """
    return {
        "tp": (layout.tp, 1),
        "cp": (layout.cp, layout.tp),
        "ep": (layout.ep, layout.etp),
        "dp_cp": (layout.dp * layout.cp, layout.tp),
        "edp": (layout.edp, layout.etp * layout.ep),
        "pp": (layout.pp, layout.tp * layout.cp * layout.dp),
    }


__all__ = ["group_strides"]

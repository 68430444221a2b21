"""A concrete layout: all degrees, options and pipeline slots of one training run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from meshplan.constraints.decisions import GRAPH_FLAGS, RECOMPUTE_FLAGS

#: Value of one decision: a degree, a flag (0 or 1), or the name of an option.
Value: TypeAlias = int | str


@dataclass(frozen=True)
class Slot:
    """One virtual pipeline stage: a run of consecutive layers.

    Attributes
    ----------
    first, count
        The decoder layers ``first .. first + count - 1`` of the model (0-based); ``count`` may
        be 0.
    embedding, mtp, loss
        Whether the slot also holds the embedding, the MTP layers, the final norm + head + loss.
    """

    first: int
    count: int
    embedding: bool = False
    mtp: bool = False
    loss: bool = False


@dataclass(frozen=True)
class Layout:
    """All decisions of a layout.  ``slots[v * pp + s]`` is chunk ``v`` of pipeline rank ``s``.

    ``offload`` is the percentage of the optimizer state kept on the host (0 to 100).
    ``dp`` and ``edp`` follow from the GPU count and the other degrees; they are stored because
    an illegal layout may state others.
    """

    tp: int = 1
    cp: int = 1
    pp: int = 1
    vpp: int = 1
    dp: int = 1
    ep: int = 1
    etp: int = 1
    edp: int = 1
    mbs: int = 1
    ga: int = 1
    gbs: int = 1
    recompute: tuple[str, ...] = ()
    recompute_full: bool = False
    offload: int = 0
    dispatcher: str = "alltoall"
    cp_comm: str = "p2p"
    cuda_graphs: tuple[str, ...] = ()
    slots: tuple[Slot, ...] = field(default=())

    @property
    def gpus(self) -> int:
        """GPUs of the attention mesh, ``tp * cp * dp * pp``."""
        return self.tp * self.cp * self.dp * self.pp

    @property
    def granularity(self) -> str | None:
        """Megatron's ``recompute_granularity``: ``full``, ``selective`` or None."""
        if self.recompute_full:
            return "full"
        return "selective" if self.recompute else None

    def value(self, name: str) -> Value:
        """Value of the decision ``name`` (see :mod:`meshplan.constraints.decisions`).

        Raises
        ------
        KeyError
            If ``name`` is no decision.
        """
        if name in RECOMPUTE_FLAGS:
            return int(name.removeprefix("rc_") in self.recompute)
        if name in GRAPH_FLAGS:
            return int(name.removeprefix("cg_") in self.cuda_graphs)
        if name == "rc_full":
            return int(self.recompute_full)
        try:
            value = getattr(self, name)
        except AttributeError:
            raise KeyError(name) from None
        assert isinstance(value, int | str)
        return value

"""Which ranks talk to each other: every process group of a layout, as megatron-core builds them.

Two independent grids lie over the same ranks and share their pipeline groups:

==========  ============================  =========================================
grid        axes, fastest to slowest      who uses it
==========  ============================  =========================================
attention   ``tp``, ``cp``, ``dp``, ``pp``    attention, dense MLP, shared experts
expert      ``etp``, ``ep``, ``edp``, ``pp``  routed experts only
==========  ============================  =========================================

Neighbouring ranks differ in the first axis.  With ``tp-cp-ep-pp-dp`` the last two axes of both
grids change places.  Source: Megatron-LM d98e8a64 ``core/parallel_state.py`` ``RankGenerator``,
``initialize_model_parallel``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeAlias

from meshplan.constraints.layout import Layout

#: Ranks of one process group, ascending.
Group: TypeAlias = tuple[int, ...]

#: Order of the axes that Megatron-LM uses unless told otherwise.
DEFAULT_ORDER = "tp-cp-ep-dp-pp"
#: The orders that its command line can ask for; the second is ``--use-tp-pp-dp-mapping``.
ORDERS = (DEFAULT_ORDER, "tp-cp-ep-pp-dp")

#: Kinds of groups, and the axes along which the ranks of one group differ.
KINDS: dict[str, tuple[str, ...]] = {
    "tp": ("tp",),
    "cp": ("cp",),
    "dp": ("dp",),
    "dp_cp": ("cp", "dp"),
    "tp_cp": ("tp", "cp"),
    "ep": ("ep",),
    "etp": ("etp",),
    "etp_ep": ("etp", "ep"),
    "edp": ("edp",),
    "pp": ("pp",),
}

_ATTENTION = {DEFAULT_ORDER: ("tp", "cp", "dp", "pp"), ORDERS[1]: ("tp", "cp", "pp", "dp")}
_EXPERT = {DEFAULT_ORDER: ("etp", "ep", "edp", "pp"), ORDERS[1]: ("etp", "ep", "pp", "edp")}


class _Grid:
    """One factorisation of the ranks: the size and the stride of each axis."""

    def __init__(self, layout: Layout, axes: tuple[str, ...]) -> None:
        self.axes = axes
        self.sizes = {axis: int(layout.value(axis)) for axis in axes}
        self.strides: dict[str, int] = {}
        self.world = 1
        for axis in axes:
            self.strides[axis] = self.world
            self.world *= self.sizes[axis]

    def _offsets(self, axes: tuple[str, ...]) -> list[int]:
        """Ranks of the sub-grid of these axes that holds rank 0, the first axis fastest."""
        offsets = [0]
        for axis in axes:
            steps = range(0, self.sizes[axis] * self.strides[axis], self.strides[axis])
            offsets = [step + offset for step in steps for offset in offsets]
        return offsets

    def all(self, kind: tuple[str, ...]) -> tuple[Group, ...]:
        """All groups of a kind, in megatron-core's order: by their other axes, first fastest."""
        inside = self._offsets(tuple(axis for axis in self.axes if axis in kind))
        firsts = self._offsets(tuple(axis for axis in self.axes if axis not in kind))
        return tuple(tuple(first + offset for offset in inside) for first in firsts)

    def of(self, kind: tuple[str, ...], rank: int) -> Group:
        """The group of that kind that holds ``rank``."""
        axes = tuple(axis for axis in self.axes if axis in kind)
        here = sum(rank // self.strides[a] % self.sizes[a] * self.strides[a] for a in axes)
        return tuple(rank - here + offset for offset in self._offsets(axes))


class RankGroups:
    """The process groups of one layout.

    Each kind is built when it is first asked for and then kept; :meth:`groups_of` builds none of
    them, only the groups of one rank.

    Attributes
    ----------
    world
        GPUs, all of which have a rank: 0 to ``world - 1``.
    order
        Order of the axes, one of :data:`ORDERS`.
    """

    def __init__(self, layout: Layout, order: str = DEFAULT_ORDER) -> None:
        if order not in ORDERS:
            raise ValueError(f"order {order!r} is none of {' and '.join(ORDERS)}")
        self.order = order
        self._attention = _Grid(layout, _ATTENTION[order])
        self._expert = _Grid(layout, _EXPERT[order])
        self.world = self._attention.world
        if self.world != self._expert.world:
            raise ValueError(
                f"tp*cp*dp*pp = {layout.tp}*{layout.cp}*{layout.dp}*{layout.pp} = {self.world}, "
                f"but etp*ep*edp*pp = {layout.etp}*{layout.ep}*{layout.edp}*{layout.pp} = "
                f"{self._expert.world}: the two grids must lie over the same ranks"
            )
        if order != DEFAULT_ORDER and layout.pp > 1 and layout.dp != layout.edp:
            raise ValueError(
                f"order {order} needs dp == edp where pp > 1, or the grids have different pipeline "
                f"groups; here dp = {layout.dp}, edp = {layout.edp}, pp = {layout.pp}"
            )

    def _grid(self, kind: str) -> _Grid:
        """The grid that a kind of groups is cut from; both give the same ``pp`` groups."""
        return self._attention if KINDS[kind][0] in self._attention.sizes else self._expert

    def _all(self, kind: str) -> tuple[Group, ...]:
        return self._grid(kind).all(KINDS[kind])

    @cached_property
    def tp(self) -> tuple[Group, ...]:
        """Tensor parallel groups: split linears and, with sequence parallelism, the sequence."""
        return self._all("tp")

    @cached_property
    def cp(self) -> tuple[Group, ...]:
        """Context parallel groups: exchange of keys and values."""
        return self._all("cp")

    @cached_property
    def dp(self) -> tuple[Group, ...]:
        """Data parallel groups of the attention grid: ranks that share a shard of the weights."""
        return self._all("dp")

    @cached_property
    def dp_cp(self) -> tuple[Group, ...]:
        """Groups over which gradients and optimizer state of dense parameters are sharded."""
        return self._all("dp_cp")

    @cached_property
    def tp_cp(self) -> tuple[Group, ...]:
        """Ranks that work on the same sequences of one pipeline stage."""
        return self._all("tp_cp")

    @cached_property
    def ep(self) -> tuple[Group, ...]:
        """Expert parallel groups: all-to-all of tokens."""
        return self._all("ep")

    @cached_property
    def etp(self) -> tuple[Group, ...]:
        """Expert tensor parallel groups: split linears of each expert."""
        return self._all("etp")

    @cached_property
    def etp_ep(self) -> tuple[Group, ...]:
        """Groups of the DeepEP and HybridEP dispatchers, which span ETP and EP at once."""
        return self._all("etp_ep")

    @cached_property
    def edp(self) -> tuple[Group, ...]:
        """Groups over which gradients and optimizer state of the experts are sharded."""
        return self._all("edp")

    @cached_property
    def pp(self) -> tuple[Group, ...]:
        """Pipeline groups, stage after stage; the same in both grids."""
        return self._all("pp")

    def kind(self, name: str) -> tuple[Group, ...]:
        """All groups of the kind with that name, one of :data:`KINDS`.

        Raises
        ------
        KeyError
            If there is no such kind.
        """
        if name not in KINDS:
            raise KeyError(name)
        groups: tuple[Group, ...] = getattr(self, name)
        return groups

    def groups_of(self, rank: int) -> dict[str, Group]:
        """The group of each kind that holds ``rank``.

        Raises
        ------
        IndexError
            If no GPU has that rank.
        """
        if not 0 <= rank < self.world:
            raise IndexError(
                f"rank {rank} is not one of the {self.world} ranks 0 to {self.world - 1}"
            )
        return {kind: self._grid(kind).of(axes, rank) for kind, axes in KINDS.items()}


def rank_groups(layout: Layout, order: str = DEFAULT_ORDER) -> RankGroups:
    """The process groups of a legal layout, equal to those that megatron-core builds.

    Parameters
    ----------
    layout
        Degrees ``tp, cp, dp, pp`` and ``etp, ep, edp``; nothing else is read.
    order
        ``tp-cp-ep-dp-pp``, or ``tp-cp-ep-pp-dp`` for ``--use-tp-pp-dp-mapping``.

    Raises
    ------
    ValueError
        If the two grids have different sizes, or the order is unknown or not allowed for them.
    """
    return RankGroups(layout, order)

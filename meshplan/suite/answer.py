"""What a search said, as plain data that goes from a worker to the one who asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshplan.solver.results import Infeasible, Plan, Unknown


@dataclass(frozen=True)
class Answer:
    """What a search said of one scenario.

    Attributes
    ----------
    status
        ``optimal``, ``feasible``, ``infeasible`` or ``unknown``.
    layout
        Degrees of the plan by name; empty without one.
    recompute
        Modules that are recomputed, or ``full``; empty for none.
    conflicts
        Rule ids of each conflict.
    reasons
        Each conflict in words.
    pipeline
        The slots in Megatron's notation; None without a pipeline.
    cp_comm
        How context parallelism exchanges keys and values.
    graphs
        Scopes of CUDA graphs.
    offload
        Fraction of the optimizer state on the host.
    step_s, peak_gib, tokens_per_s_per_gpu
        Cost of the plan; None without one.
    calibration
        Name and day of the efficiencies behind the step time.
    """

    status: str
    layout: Mapping[str, int] = field(default_factory=dict)
    recompute: tuple[str, ...] = ()
    dispatcher: str | None = None
    conflicts: tuple[tuple[str, ...], ...] = ()
    reasons: tuple[str, ...] = ()
    pipeline: str | None = None
    cp_comm: str | None = None
    graphs: tuple[str, ...] = ()
    offload: float = 0.0
    step_s: float | None = None
    peak_gib: float | None = None
    tokens_per_s_per_gpu: float | None = None
    calibration: str | None = None

    @property
    def final(self) -> bool:
        """Whether it is proved: no limit cut it short."""
        return self.status in ("optimal", "infeasible")

    def __str__(self) -> str:
        """In a few words: status, and step time or the rules that clash."""
        if self.step_s is not None:
            return f"{self.status}, step {self.step_s:.4g} s"
        rules = next((", ".join(rules) for rules in self.conflicts), "")
        return f"{self.status}: {rules}" if rules else self.status


def answer_of(result: Plan | Infeasible | Unknown) -> Answer:
    """The plain data of a result, by the names of its JSON."""
    data: dict[str, Any] = result.to_json()
    if data["layout"] is None:
        return Answer(
            data["status"],
            conflicts=tuple(tuple(one["rules"]) for one in data["conflicts"]),
            reasons=tuple(one["text"] for one in data["conflicts"]),
        )
    recompute, cost = data["recompute"], data["time"]
    full = recompute["granularity"] == "full"
    return Answer(
        data["status"],
        layout={name: value for name, value in data["layout"].items() if isinstance(value, int)},
        recompute=("full",) if full else tuple(recompute["modules"]),
        dispatcher=data["dispatcher"],
        pipeline=data["pipeline"]["layout"] if data["pipeline"] else None,
        cp_comm=data["layout"]["cp_comm"],
        graphs=tuple(data["cuda_graphs"]),
        offload=data["optimizer_offload"],
        step_s=cost["step_s"],
        peak_gib=data["memory"]["peak_gib"],
        tokens_per_s_per_gpu=cost["tokens_per_s_per_gpu"],
        calibration="{name}, {date}".format(**cost["calibration"]),
    )


__all__ = ["Answer", "answer_of"]

"""One triple put to both sides, and where they disagree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.legality_draws import Triple
from benchmarks.megatron_arguments import arguments
from meshplan.constraints.layout_rules import ALL_LAYOUT_RULES
from meshplan.constraints.problem import scope_values
from meshplan.constraints.rules import ALL_RULES
from meshplan.constraints.split_rules import LAYERS_SPLIT_EVENLY
from tests.peer.client import Peer

#: Pseudo-rule for layout strings that cannot be read at all.
GRAMMAR = "layout-grammar"

_ENGINE = "inside Transformer Engine, which needs a GPU"
_BRIDGE = "a check of Megatron-Bridge"
_LIMIT = "a limit of the scenario"
_SHARED = "not drawn: the arguments always ask for the distributed optimizer"
_FORM = "meshplan's own normal form; the arguments cannot express a breach"
#: Rules that the package cannot be asked about on a machine without GPUs, and why.
NOT_EXERCISED: dict[str, str] = {
    "min-dp": _LIMIT,
    "tp-within-domain": _LIMIT,
    "etp-within-domain": _LIMIT,
    "ep-within-domain": _LIMIT,
    "dense-expert-grid": _FORM,
    "cp-comm-needs-cp": _FORM,
    "dispatcher-needs-moe": _FORM,
    "recompute-full-xor-selective": _FORM,
    "layout-layer-order": _FORM,
    "bridge-deepep-arch": _BRIDGE,
    "bridge-hybridep-arch": _BRIDGE,
    "bridge-hybridep-domain": _BRIDGE,
    "deepep-rank-count": "inside DeepEP's kernels",
    "deepep-node-size": "inside DeepEP's kernels",
    "mamba-heads-tpcp": "inside MambaMixer, which needs the kernels of mamba-ssm and so a GPU",
    "pao-needs-distributed-optimizer": _SHARED,
    "fp8-params-need-distributed-optimizer": _SHARED,
    "cp-a2a-heads": _ENGINE,
    "cp-sliding-window-comm": _ENGINE,
    "cp-sinks-need-a2a": _ENGINE,
    "graphs-need-static-shapes": _ENGINE,
    "fp8-token-align": _ENGINE,
    "mxfp8-token-align": _ENGINE,
    "fp8-width-align": _ENGINE,
    "mxfp8-width-align": _ENGINE,
    "fp8-expert-width-align": _ENGINE,
    "mxfp8-expert-width-align": _ENGINE,
}
#: Rules that the package can be asked about.
EXERCISED: tuple[str, ...] = tuple(
    name
    for name in (
        *(one.id for one in ALL_RULES),
        *(one.id for one in ALL_LAYOUT_RULES),
        GRAMMAR,
    )
    if name not in NOT_EXERCISED
)


def broken_rules(triple: Triple) -> tuple[str, ...]:
    """Ids of all rules that the triple breaks by meshplan's account."""
    problem, layout = triple.problem, triple.layout
    broken = [
        rule.id
        for rule in ALL_RULES
        if rule.applies(problem)
        and not rule.holds(problem, *scope_values(problem, layout, rule.scope))
    ]
    if triple.unreadable is not None:
        return (*broken, GRAMMAR)
    slots = [one.id for one in ALL_LAYOUT_RULES if one.check(problem, layout) is not None]
    if LAYERS_SPLIT_EVENLY.id in slots:  # then there are no slots to judge
        slots = [LAYERS_SPLIT_EVENLY.id]
    return (*broken, *slots)


def query(triple: Triple) -> dict[str, Any]:
    """The question to the package."""
    problem, layout = triple.problem, triple.layout
    return {
        "query": "check",
        "argv": arguments(problem, layout, triple.account),
        "world": problem.gpus,
        "capability": problem.node_type.compute_capability,
        "vpp": layout.vpp if problem.layout_string is not None else None,
    }


@dataclass(frozen=True)
class Verdicts:
    """Both verdicts on one triple.

    Attributes
    ----------
    broken
        Rules broken by meshplan's account that the package can be asked about.
    stage, message
        Where the package refused, and its words; None if it accepts.
    numbers
        Figures that differ although both sides accept, as sentences.
    """

    broken: tuple[str, ...]
    stage: str | None
    message: str | None
    numbers: tuple[str, ...] = ()

    @property
    def disagreement(self) -> str | None:
        """What the sides disagree on, in a sentence; None if they agree."""
        if self.broken and self.stage is None:
            return f"meshplan refuses ({', '.join(self.broken)}), megatron-core accepts"
        if not self.broken and self.stage is not None:
            return f"meshplan accepts, megatron-core refuses in {self.stage}: {self.message}"
        return f"both accept, but {'; '.join(self.numbers)}" if self.numbers else None


def compare(triple: Triple, peer: Peer) -> Verdicts:
    """Ask both sides."""
    broken = tuple(name for name in broken_rules(triple) if name not in NOT_EXERCISED)
    answer = peer.ask(query(triple))
    if not answer["accept"]:
        said = f"{answer['error']} {answer['message']} ({answer['where']})"
        return Verdicts(broken, answer["stage"], said)
    numbers = () if broken else tuple(_differences(triple, answer["found"]))
    return Verdicts(broken, None, None, numbers)


def _differences(triple: Triple, found: dict[str, Any]) -> list[str]:
    """Degrees and layers of each stage where the two accounts differ."""
    layout = triple.layout
    differences = [
        f"{name} is {getattr(layout, name)} here and {found[name]} there"
        for name in ("dp", "edp", "ga", "vpp")
        if getattr(layout, name) != found[name]
    ]
    ours = [[slot.count, slot.first, slot.mtp] for slot in layout.slots]
    theirs = [[count, first, mtp > 0] for count, first, mtp in found["stages"]]
    if ours != theirs:
        differences.append(f"the stages are {ours} here and {theirs} there")
    return differences

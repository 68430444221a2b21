"""Random (layout, model, settings) triples near the edges of rules.

A draw starts from a layout that is meant to be legal (:func:`base`) and lets some of the aims of
:mod:`benchmarks.legality_aims` move it to the edge of a rule, on either side.  Draw ``index`` of a
seed is the same in every run, whatever the number of draws or processes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from meshplan.constraints.layout import Layout, Slot
from meshplan.constraints.pipeline import (
    LayoutStringError,
    balanced_slots,
    even_slots,
    format_layout,
    parse_layout,
)
from meshplan.constraints.problem import Problem, Training
from meshplan.scenarios.cards import load_card
from meshplan.scenarios.model_card import ModelCard
from meshplan.topologies import build_cluster
from meshplan.topologies.cluster import Cluster

#: Shipped cards that triples are made from; small ones more often, because they build faster.
DENSE = ("toy-dense", "llama-3.1-8b", "llama-3.1-70b")
MOE = ("toy-moe", "moonlight-16b-a3b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "kimi-k2")
DELTA_NET = "qwen3-next-80b-a3b"
PRESETS = ("h100-hgx", "gb200-nvl72", "b200-hgx", "a100-hgx")
PRECISIONS = ("bf16", "bf16", "fp8-tensor", "fp8-current", "fp8-block", "mxfp8", "nvfp4")
#: Ways to count embedding and loss in the even split, in the order that meshplan tries them.
ACCOUNTS = ((0, 0), (1, 1), (1, 0), (0, 1))
#: Largest number of GPUs of a triple.
MOST_GPUS = 1536


@dataclass
class Draft:
    """A triple in the making: everything may be moved, and the derived figures follow.

    ``text`` is the pipeline layout string; None for the framework's even split.  ``gpus`` None
    means that the attention mesh decides, with ``dp`` replicas.
    """

    card: str
    changes: dict[str, Any] = field(default_factory=dict)
    preset: str = "h100-hgx"
    gpus: int | None = None
    dp: int = 1
    degrees: dict[str, int] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    precision: str = "bf16"
    seq_len: int = 4096
    gbs: int | None = None
    ga: int = 1
    text: str | None = None
    account: tuple[int, int] | None = None

    def __getitem__(self, degree: str) -> int:
        return self.degrees.get(degree, 1)

    @property
    def model(self) -> ModelCard:
        """The card with the changes.

        Raises
        ------
        pydantic.ValidationError
            If the changed figures contradict each other.
        """
        card = _plain(self.card)
        return ModelCard.model_validate({**card, **self.changes}) if self.changes else _card(card)

    @property
    def dense_block(self) -> int:
        """GPUs of one replica, ``tp*cp*pp``."""
        return self["tp"] * self["cp"] * self["pp"]


@lru_cache(maxsize=32)
def _plain(name: str) -> dict[str, Any]:
    return load_card(name).model_dump()


def _card(plain: dict[str, Any]) -> ModelCard:
    return load_card(plain["name"])


@lru_cache(maxsize=4096)
def _cluster(preset: str, gpus: int) -> Cluster:
    full, rest = divmod(gpus, 8)
    return build_cluster(preset, domains=(8,) * full + ((rest,) if rest else ()))


@dataclass(frozen=True)
class Triple:
    """One question to both sides.

    Attributes
    ----------
    unreadable
        Why meshplan cannot read the layout string; None if it can.
    aims
        Which rules the draw was moved to the edge of.
    """

    problem: Problem
    layout: Layout
    account: tuple[int, int]
    unreadable: str | None
    aims: tuple[str, ...]


def finish(draft: Draft, rng: random.Random, aims: tuple[str, ...]) -> Triple | None:
    """The triple of a draft; None if it is no triple at all (contradictory card, too large)."""
    try:
        model = draft.model
    except ValueError:
        return None
    gpus = draft.gpus if draft.gpus is not None else draft.dense_block * draft.dp
    if not 1 <= gpus <= MOST_GPUS or min(draft.degrees.values(), default=1) < 1:
        return None
    degrees = {name: draft[name] for name in ("tp", "cp", "pp", "vpp", "ep", "etp", "mbs")}
    if not model.is_moe:
        degrees["etp"] = degrees["tp"]
    dp = max(1, gpus // draft.dense_block)
    edp = max(1, gpus // (degrees["etp"] * degrees["ep"] * degrees["pp"]))
    step = degrees["mbs"] * dp
    gbs = draft.gbs if draft.gbs is not None else step * draft.ga
    problem = Problem(
        name="draw",
        model=model,
        cluster=_cluster(draft.preset, gpus),
        seq_len=draft.seq_len,
        precision=draft.precision,
        variable_length=False,
        candidates={},
        training=Training(**draft.training),
        layout_string=draft.text,
        even_split=draft.text is None,
    )
    slots: tuple[Slot, ...] = ()
    unreadable = None
    mtp = model.mtp_layers > 0
    account = draft.account or ACCOUNTS[0]
    if draft.text is not None:
        try:
            slots = parse_layout(draft.text)
        except LayoutStringError as error:
            unreadable = str(error)
    else:
        slots = even_slots(model.layers, degrees["pp"], degrees["vpp"], mtp=mtp) or ()
        account = _account(model.layers, degrees["pp"] * degrees["vpp"]) or rng.choice(ACCOUNTS)
    decisions: dict[str, Any] = {**degrees, **draft.options}
    ga = max(1, gbs // step)
    layout = Layout(**decisions, dp=dp, edp=edp, gbs=gbs, ga=ga, slots=slots)
    return Triple(problem, layout, account, unreadable, aims)


def _account(layers: int, stages: int) -> tuple[int, int] | None:
    """The first way of counting the ends that lets the layers split evenly."""
    return next((ends for ends in ACCOUNTS if (layers + sum(ends)) % stages == 0), None)


def divisors(number: int, most: int) -> list[int]:
    """Divisors of ``number`` up to ``most``."""
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def base(rng: random.Random, kind: str = "any") -> Draft:
    """A draft that is meant to be legal; ``kind`` is ``dense``, ``moe``, ``gdn`` or ``any``."""
    if kind == "any":
        kind = rng.choices(("dense", "moe", "gdn"), (4, 8, 1))[0]
    name = {"dense": rng.choice(DENSE), "moe": rng.choice(MOE), "gdn": DELTA_NET}[kind]
    draft = Draft(card=name, preset=rng.choice(PRESETS))
    if rng.random() < 0.7:
        _shorten(draft, rng)
    model = draft.model
    draft.degrees["tp"] = rng.choice(divisors(model.kv_groups, 8))
    if kind == "gdn":
        draft.degrees["tp"] = rng.choice((1, 2))
    draft.degrees["cp"] = rng.choice((1, 1, 2, 4, 8))
    draft.degrees["pp"] = rng.choice((1, 2, 2, 3, 4, 6, 8))
    draft.degrees["mbs"] = rng.choice((1, 1, 2, 3))
    draft.dp = rng.choice((1, 2, 2, 3, 4, 6, 8))
    draft.seq_len = 2 * draft["cp"] * draft["tp"] * rng.choice((16, 64, 96, 1024))
    if model.is_moe:
        stage = draft["tp"] * draft["cp"] * draft.dp
        draft.degrees["ep"] = rng.choice([n for n in divisors(model.experts, 64) if stage % n == 0])
        rest = stage // draft["ep"]
        widths = [1, 1] if model.mlp_bias else [1, *divisors(model.moe_ffn, 8)]
        draft.degrees["etp"] = rng.choice([n for n in widths if rest % n == 0])
    _draw_settings(draft, rng, model)
    draw_split(draft, rng)
    return draft


def _shorten(draft: Draft, rng: random.Random) -> None:
    """Fewer layers, and sometimes MTP layers."""
    model = draft.model
    layers = rng.choice((2, 3, 4, 5, 6, 7, 8, 11, 12, 16, 24))
    draft.changes["layers"] = layers
    if model.dense_layers >= layers:
        draft.changes["dense_layers"] = layers - 1
    if model.layer_pattern is not None and layers < len(model.layer_pattern):
        draft.changes["layers"] = len(model.layer_pattern)
    draft.changes["mtp_layers"] = rng.choice((0, 0, 1, 1, 2, 3))


def _draw_settings(draft: Draft, rng: random.Random, model: ModelCard) -> None:
    draft.precision = rng.choice(PRECISIONS)
    draft.training["moment_bytes"] = rng.choice((2, 4))
    draft.training["gradient_bytes"] = rng.choice((2, 4))
    draft.training["cross_entropy"] = rng.choice(("native", "unfused"))
    draft.options["offload"] = rng.choice((0, 0, 50, 100))
    draft.options["cp_comm"] = rng.choice(("p2p", "p2p", "all_gather"))
    if model.is_moe:
        runs = draft["etp"] * draft["ep"] > 1
        draft.options["dispatcher"] = rng.choice(
            ("alltoall", "hybridep", "deepep" if runs else "alltoall")
        )
    if rng.random() < 0.2:
        draft.options["recompute_full"] = True


def draw_split(draft: Draft, rng: random.Random, vpp: int | None = None) -> None:
    """Draw the virtual stages and a split of the layers that suits them; batch to match."""
    pp, model = draft["pp"], draft.model
    vpp = vpp if vpp is not None else rng.choice((1, 1, 2, 3, 4)) if pp > 1 else 1
    draft.degrees["vpp"] = vpp
    draft.ga = rng.choice((1, 2, 3)) * pp if vpp > 1 else rng.choice((1, 2, 3, 5, 8))
    draft.text, draft.account = None, None
    if _account(model.layers, pp * vpp) is None or rng.random() < 0.5:
        problem = Problem("", model, _cluster("h100-hgx", 8), 8, "bf16", False, {})
        draft.text = format_layout(balanced_slots(problem, pp, vpp), model.mtp_layers)


def draw(seed: int, index: int) -> Triple:
    """Triple number ``index`` of a seed."""
    from benchmarks.legality_aims import aim

    for attempt in range(1000):
        rng = random.Random(f"{seed}:{index}:{attempt}")
        draft, aims = aim(rng, index)
        triple = finish(draft, rng, aims)
        if triple is not None:
            return triple
    raise AssertionError(f"no triple for seed {seed}, index {index}")

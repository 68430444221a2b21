"""Random legal layouts of shipped models on clusters of several NVLink domains."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from meshplan.constraints.decisions import CP_COMM_TYPES, DISPATCHERS, RECOMPUTE_MODULES
from meshplan.constraints.layout import Layout
from meshplan.constraints.pipeline import balanced_slots
from meshplan.constraints.problem import Problem, Training
from meshplan.solver.judge import violations
from tests.constraints.factories import problem

#: One of each kind of layer: dense, GQA and MLA experts, latent experts, gated delta net, Mamba,
#: sliding windows with sinks, MTP.
MODELS = (
    "llama-3.1-8b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v3", "gpt-oss-120b",
    "qwen3-next-80b-a3b", "nemotron-3-nano-30b-a3b", "moonlight-16b-a3b",
)  # fmt: skip
#: Domains of 8, of 32 (a rack in use by half), and what each generation computes in.
CLUSTERS: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "h100-hgx": ((8,) * 8, ("bf16", "fp8-tensor", "fp8-block")),
    "b200-hgx": ((8,) * 4, ("bf16", "mxfp8", "nvfp4")),
    "gb200-nvl72": ((32, 32), ("bf16", "mxfp8", "nvfp4")),
}


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A shipped model on a cluster, with the settings that the time model reads."""
    preset = draw(st.sampled_from(sorted(CLUSTERS)))
    domains, precisions = CLUSTERS[preset]
    flags = st.booleans()
    return problem(
        draw(st.sampled_from(MODELS)),
        preset,
        domains=domains,
        seq_len=draw(st.sampled_from((4096, 16384, 65536))),
        precision=draw(st.sampled_from(precisions)),
        training=Training(
            overlap_expert_communication=draw(flags),
            overlap_tensor_communication=draw(flags),
            fused_grouped_mlp=draw(flags),
            activation_offload=draw(st.sampled_from(((), ("core_attn",), ("expert_fc1",)))),
            load_imbalance=draw(st.sampled_from((1.0, 1.3))),
        ),
    )


@st.composite
def layouts(draw: st.DrawFn, where: Problem) -> Layout:
    """A layout of the problem that breaks no rule."""
    left = where.gpus
    degrees: dict[str, Any] = {}
    for name, most in (("pp", 8), ("tp", 8), ("cp", 16)):
        degrees[name] = draw(_powers(min(most, left)))
        left //= degrees[name]
    pp, experts = degrees["pp"], where.gpus // degrees["pp"]
    moe = where.model.is_moe
    ep = draw(_powers(experts)) if moe else 1
    etp = draw(_powers(min(2, experts // ep))) if moe else 1
    vpp = draw(st.sampled_from((1, 2, 3))) if pp > 1 else 1
    ga = pp * draw(st.integers(1, 4))
    mbs = draw(st.sampled_from((1, 2)))
    options: dict[str, Any] = {
        "recompute": tuple(draw(st.sets(st.sampled_from(RECOMPUTE_MODULES), max_size=2))),
        "recompute_full": False,
        "dispatcher": draw(st.sampled_from(DISPATCHERS)) if moe else "alltoall",
        "cp_comm": draw(st.sampled_from(CP_COMM_TYPES)) if degrees["cp"] > 1 else "p2p",
        "offload": draw(st.sampled_from((0, 50, 100))),
    }
    if draw(st.integers(0, 4)) == 0:
        options |= {"recompute": (), "recompute_full": True}
    layout = Layout(
        **degrees, **options, dp=left, ep=ep, etp=etp, edp=experts // ep // etp,
        vpp=vpp, mbs=mbs, ga=ga, gbs=ga * mbs * left,
        slots=balanced_slots(where, pp, vpp) or (),
    )  # fmt: skip
    assume(layout.slots and not violations(where, layout))
    return layout


def _powers(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([1 << n for n in range(most.bit_length())])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Problem, Layout]:
    """A problem and a legal layout of it."""
    where = draw(problems())
    return where, draw(layouts(where))


def with_links(where: Problem, **factors: float) -> Problem:
    """The same problem with some figures of its node type multiplied."""
    node = where.node_type
    changed = {name: getattr(node, name) * factor for name, factor in factors.items()}
    cluster = dataclasses.replace(where.cluster, node_type=node.model_copy(update=changed))
    return dataclasses.replace(where, cluster=cluster)

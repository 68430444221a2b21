"""The search against enumeration where memory decides: each part of the model in small scenarios.

Every theme draws its own scenarios, and the sizes of GPU and host memory from what the enumerated
layouts need, so that often a quantum less would change the answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from meshplan.constraints.problem import HOST_RESERVE, QUANTA_PER_GIB, Problem
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.solver.bounds import NEVER
from meshplan.solver.cells import UNLIMITED
from meshplan.solver.placements import exact_bounds
from meshplan.solver.program import Goal, solve_program
from meshplan.solver.rank_bounds import Bounds
from tests.constraints.memory_layouts import OFFLOAD_MODULES
from tests.solver.oracle import Best, TooLarge, Tried, best, tried
from tests.solver.small import FAMILIES, small, with_capacity
from tests.solver.test_oracle import found
from tests.solver.test_search_properties import _cells as some_cells

#: Cases of each theme in all, in batches; and most layouts of a case.
BATCHES, CASES, MOST_LAYOUTS = 2, 10, 400

_MAMBA: dict[str, Any] = {
    "mamba_heads": 16, "mamba_head_dim": 64, "mamba_state": 64, "mamba_groups": 4, "mamba_conv": 4,
}  # fmt: skip
#: Models whose layers have a single part each.
HYBRIDS: dict[str, dict[str, Any]] = {
    "hybrid-moe": {
        **FAMILIES["moe"], **_MAMBA, "gated": False, "shared_ffn": 1024,
        "layer_pattern": ["mamba", "moe", "attention", "moe"],
    },
    "hybrid-latent": {
        **FAMILIES["moe"], **_MAMBA, "gated": False, "moe_latent": 256,
        "layer_pattern": ["mamba", "moe", "mamba", "attention"],
    },
    "hybrid-dense": {
        **FAMILIES["dense"], **_MAMBA, "layer_pattern": ["mamba", "mlp", "attention", "mlp"],
    },
}  # fmt: skip


def with_host(problem: Problem, host: int) -> Problem:
    """The same problem on nodes of which each GPU's rank may use ``host`` quanta."""
    share = (host + 0.5) / QUANTA_PER_GIB / (1 - HOST_RESERVE)
    node = problem.node_type
    node = node.model_copy(update={"host_memory_gib": share * node.gpus_per_node})
    other = dataclasses.replace(
        problem, cluster=dataclasses.replace(problem.cluster, node_type=node)
    )
    assert other.host_capacity == host
    return other


# -- scenarios by theme ----------------------------------------------------------------------------


def _scenario(rng: random.Random, family: str) -> dict[str, Any]:
    """A model with 4 or 5 layers on 4 or 8 GPUs; what a theme is not about is pinned."""
    card = {k: v for k, v in (FAMILIES | HYBRIDS)[family].items() if v is not None}
    card |= {"name": f"tiny-{family}", "layers": rng.choice([4, 4, 5])}
    if rng.random() < 0.4:
        card |= {"mtp_layers": rng.choice([1, 2])}
        card |= {"mtp_repeated": True} if rng.random() < 0.5 else {}
    moe = "experts" in card
    return {
        "meshplan": 1,
        "name": "small",
        "model": card,
        "cluster": {"preset": "h100-hgx", "gpus": rng.choice([4, 8])},
        "workload": {"seq_len": 4096, "global_batch_size": rng.choice([8, 16])},
        "layout": {"tp": [1, 2], "cp": 1, "mbs": 1, "vpp": [1, 2], "etp": 1 if moe else [1, 2]},
        "options": {"recompute": "none", "optimizer_offload": 0, "dispatcher": "alltoall"},
        "training": {},
        "objective": {"dp_tolerance": rng.choice([0.0, 0.05, 0.3])},
    }


def _optimizer_step(rng: random.Random) -> dict[str, Any]:
    """Short sequences and casts of the optimizer, so that its step may be the peak."""
    data = _scenario(rng, rng.choice(["dense", "moe", "moe-shared", "mla-moe", "hybrid-moe"]))
    data["workload"]["seq_len"] = rng.choice([128, 512, 2048])
    data["training"] |= {
        "moment_dtype": rng.choice(["bf16", "bf16", "fp32"]),
        "gradient_dtype": rng.choice(["bf16", "fp32"]),
        "distributed_optimizer": rng.random() < 0.7,
    }
    data["options"]["optimizer_offload"] = rng.choice([0, 0, 0.5])
    return data


def _scarce_hosts(rng: random.Random) -> dict[str, Any]:
    """Optimizer state on the host, where that is wanted."""
    data = _scenario(rng, rng.choice(["dense", "moe-prefix", "mla-moe", "hybrid-moe", "gdn-full"]))
    data["options"]["optimizer_offload"] = rng.choice(["auto", "auto", 0.5, 1])
    data["workload"]["precision"] = rng.choice(["bf16", "fp8-block"])
    return data


def _activation_offload(rng: random.Random) -> dict[str, Any]:
    """Activations on the host, beside recompute."""
    data = _scenario(rng, rng.choice(["dense", "moe-shared", "mla-moe", "hybrid-moe", "swa-moe"]))
    modules = {*rng.sample(OFFLOAD_MODULES, rng.choice([1, 2, 3]))}
    modules |= {"core_attn"} if "attn_proj" in modules else set()
    data["options"] |= {
        "activation_offload": sorted(modules),
        "recompute": rng.choice(["none", "auto", "full"]),
        "optimizer_offload": rng.choice([0, 0, 1]),
    }
    data["layout"]["tp"] = rng.choice([1, 2])
    return data


def _overlap(rng: random.Random) -> dict[str, Any]:
    """Expert communication overlapped: a longer warm-up, on virtual stages only."""
    data = _scenario(rng, rng.choice(["moe", "moe-prefix", "gdn-full", "mla-moe"]))
    data["model"] |= {"layers": rng.choice([4, 5, 6, 7])}
    if data["model"].get("mtp_layers"):
        data["model"]["mtp_layers"] = 1
    data["training"]["overlap_expert_communication"] = True
    data["layout"] |= {"tp": 1, "vpp": [1, 2, 3], "ep": [2, 4]}
    return data


def _imbalance(rng: random.Random) -> dict[str, Any]:
    """Uneven routing, which the number of expert ranks caps: as many ranks, as much memory."""
    data = _scenario(rng, rng.choice(["moe", "moe-shared", "mla-moe", "gdn-full"]))
    data["training"]["load_imbalance"] = rng.choice([1.5, 3.0, 6.0])
    data["options"] |= {
        "recompute": rng.choice(["none", "auto", "full"]),
        "activation_offload": rng.choice(["none", ["expert_fc1"]]),
    }
    data["layout"] |= {"tp": 1, "ep": [1, 2, 4]}
    return data


def _hybrid(rng: random.Random) -> dict[str, Any]:
    """Mamba, attention and MLP layers apart, with MTP layers of a kind of their own."""
    data = _scenario(rng, rng.choice(list(HYBRIDS)))
    data["model"] |= {"layers": rng.choice([4, 6, 7]), "mtp_layers": rng.choice([1, 2])}
    data["options"]["recompute"] = rng.choice(["none", "auto"])
    data["layout"] |= {"tp": rng.choice([1, 2]), "vpp": [1, 2]}
    return data


def _unfused(rng: random.Random) -> dict[str, Any]:
    """Attention that keeps its scores unless core_attn is recomputed; no sequence parallelism."""
    data = _scenario(rng, rng.choice(["dense", "mla-moe", "swa-full", "moe", "hybrid-dense"]))
    dense = "experts" not in data["model"]
    data["training"] |= {
        "attention_backend": "unfused",
        "hidden_dropout": rng.choice([0, 0.1]),
        "sequence_parallel": not dense or rng.random() < 0.5,
        "gradient_accumulation_fusion": rng.random() < 0.5,
        "cross_entropy": rng.choice(["native", "te", "unfused"]),
    }
    data["options"]["recompute"] = "auto"
    data["layout"] |= {"tp": rng.choice([1, 2]), "vpp": 1}
    return data


def _exchange(rng: random.Random) -> dict[str, Any]:
    """Context parallelism: an all-to-all keeps its output, a ring holds a neighbour's K and V."""
    data = _scenario(rng, rng.choice(["dense", "swa-full", "mla-moe", "moe", "hybrid-moe"]))
    data["layout"] |= {"tp": rng.choice([1, 2]), "cp": [2, 4], "cp_comm": ["p2p", "a2a"]}
    if rng.random() < 0.5:
        del data["layout"]["cp_comm"]
    data["workload"]["seq_len"] = rng.choice([4096, 16384])
    data["framework"] = {"transformer_engine": rng.choice(["2.7", "2.8"])}
    return data


THEMES: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "optimizer-step": _optimizer_step,
    "scarce-hosts": _scarce_hosts,
    "activation-offload": _activation_offload,
    "overlap": _overlap,
    "imbalance": _imbalance,
    "hybrid": _hybrid,
    "unfused": _unfused,
    "exchange": _exchange,
}


# -- the comparison --------------------------------------------------------------------------------


def _room(rng: random.Random, needs: list[int]) -> int:
    """What the most frugal layouts just need, ample room, or a quantum less than the least."""
    sizes = sorted(set(needs))
    form = rng.random()
    if form < 0.25:
        return sizes[-1]
    if form < 0.93:
        return rng.choice(sizes[: max(1, len(sizes) // 2)])
    return max(0, sizes[0] - 1)


def _host_room(rng: random.Random, layouts: list[Tried], capacity: int) -> int:
    """As :func:`_room`, or a quantum less than what the fastest layout needs."""
    fitting = [one for one in layouts if one.peak <= capacity]
    if fitting and rng.random() < 0.4:
        return max(0, min(fitting, key=lambda one: one.scaled).host - 1)
    return _room(rng, [one.host for one in fitting] or [0])


def _cases(theme: str, batch: int) -> Iterator[tuple[int, Problem, list[Tried], Best | None]]:
    """Cases of a batch: seed, problem, all its layouts, and what the search must find."""
    count = 0
    for seed in itertools.count(1000 * batch):
        rng = random.Random(f"{theme}-{seed}")
        problem = resolve(from_mapping(THEMES[theme](rng)))
        try:
            layouts = tried(problem, MOST_LAYOUTS)
        except TooLarge:
            continue
        if not layouts:
            continue
        problem = with_capacity(problem, _room(rng, [one.peak for one in layouts]))
        problem = with_host(problem, _host_room(rng, layouts, problem.capacity))
        tolerance = problem.limits.dp_tolerance
        yield (
            seed,
            problem,
            layouts,
            best(layouts, problem.capacity, tolerance, problem.host_capacity),
        )
        count += 1
        if count == CASES:
            return


@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("theme", THEMES)
def test_search_agrees_with_enumeration(theme: str, batch: int) -> None:
    """Tests verdict, best step time, DP, peak and final step where memory is just enough."""
    differing = {}
    for seed, problem, _, wanted in _cases(theme, batch):
        answer = found(problem)
        if answer != wanted:
            differing[seed, problem.capacity, problem.host_capacity] = (answer, wanted)
    assert not differing, "seed, GPU and host memory: (search, enumeration)"


def test_cases_of_the_optimizer_step_peak_there() -> None:
    """Tests that the theme is what its name says: in most cases some layout peaks at the step."""
    cases = [layouts for _, _, layouts, _ in _cases("optimizer-step", 0)]
    assert sum(any("update" in one.event for one in layouts) for layouts in cases) > CASES / 2


@pytest.mark.parametrize("theme", ["scarce-hosts", "activation-offload"])
def test_scarce_hosts_decide_some_cases(theme: str) -> None:
    """Tests that with ample host memory the answer of some cases would be another."""
    changed = 0
    for _, problem, layouts, wanted in _cases(theme, 0):
        changed += best(layouts, problem.capacity, problem.limits.dp_tolerance) != wanted
    assert changed >= 2


@pytest.mark.parametrize(("seq_len", "engine"), [(4096, "2.16"), (16384, "2.7"), (65536, "2.16")])
def test_exchange_of_mtp_layers_decides_where_no_other_layer_has_attention(
    seq_len: int, engine: str
) -> None:
    """Tests Mamba and experts in turn: only the two MTP layers exchange keys and values.

    Each exchange is the best at some memory: all-to-all, ring and all-gather take different time
    and memory in the MTP layers.
    """
    card = {k: v for k, v in FAMILIES["moe"].items() if v is not None}
    card |= {**_MAMBA, "name": "mamba-moe", "layers": 4, "layer_pattern": ["mamba", "moe"]}
    problem = small(
        model=card | {"gated": False, "mtp_layers": 2},
        workload={"seq_len": seq_len, "global_batch_size": 8},
        layout={"tp": 1, "cp": [2, 4], "mbs": 1, "vpp": 1, "etp": 1, "pp": [1, 2]},
        options={"recompute": "none", "optimizer_offload": 0, "dispatcher": "alltoall"},
        framework={"transformer_engine": engine},
        objective={"dp_tolerance": 0.0},
    )
    layouts = tried(problem)
    differing = {}
    for capacity in sorted({one.peak for one in layouts})[::8]:
        answer, wanted = found(with_capacity(problem, capacity)), best(layouts, capacity, 0.0)
        if answer != wanted:
            differing[capacity] = (answer, wanted)
    assert not differing, "GPU memory: (search, enumeration)"


@pytest.mark.parametrize("theme", THEMES)
def test_bounds_never_exclude_a_plan(theme: str) -> None:
    """Tests cells with their own least peak: no bound calls them impossible, or needs more.

    The host limit holds in the program and in the bounds alike.
    """
    for seed, problem, _, _ in itertools.islice(_cases(theme, 1), 4):
        for _, pool, _ in some_cells(problem, random.Random(seed), 5):
            ga = [int(pool.ga[0])]
            goal = Goal("peak", [1 << 42], 1 << 30)
            lean = solve_program(problem, pool.shape, pool.costs, ga, goal, 60)
            if lean is None:
                continue
            bounds = Bounds(problem, (pool.shape,), pool.costs, pool.ga)
            assert bounds.least_step(lean.objective, UNLIMITED)[0] < NEVER, seed
            fast = Goal("step", [1 << 42], lean.objective)
            answer = solve_program(problem, pool.shape, pool.costs, ga, fast, 60)
            assert answer is not None
            assert bounds.least_step(lean.objective, UNLIMITED)[0] <= answer.objective, seed
            exact = exact_bounds(
                problem, pool.shape, pool.costs, ga[0], answer.objective, lean.objective
            )
            if exact is not None:  # few enough placements to tabulate
                assert (exact.step, exact.peak) == (answer.objective, lean.objective), seed

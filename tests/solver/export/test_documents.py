"""Exported flags and overrides, read back."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from meshplan.scenarios import from_mapping
from meshplan.scenarios.importers import read_arguments
from meshplan.scenarios.importers.agreement import disagreements, with_recipe
from meshplan.solver.check import check
from meshplan.solver.export.documents import megatron_bridge, megatron_lm
from meshplan.solver.export.environment import environment
from meshplan.solver.export.setting import override_text
from tests.solver.export.plans import PLANS, plan


def array(text: str, name: str) -> list[str]:
    """The words of a bash array, as bash itself reads them."""
    run = subprocess.run(
        ["bash", "-euc", f'{text}\nprintf "%s\\0" "${{{name}[@]}}"'],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stderr == ""
    return run.stdout.split("\0")[:-1]


@pytest.mark.parametrize("name", PLANS)
def test_flags_come_back_as_the_same_layout(tmp_path: Path, name: str) -> None:
    """Tests the round trip: ``import args`` of the flags, judged, is the plan that was exported."""
    exported = plan(tmp_path, name)
    arguments = read_arguments(megatron_lm(exported, "test", with_model=True), "plan.sh")
    part = arguments.to_scenario_part()
    scenario = from_mapping(exported.problem.asked)
    assert disagreements(arguments, part, scenario, exported.problem.model) == ()
    changed, _ = with_recipe(scenario, part)
    again = check(changed, part.stated_layout())
    assert again.layout == exported.layout
    before = exported.data["time"]["step_s"], exported.data["memory"]["peak_gib"]
    found = again.to_json()
    assert (found["time"]["step_s"], found["memory"]["peak_gib"]) == before


@pytest.mark.parametrize("name", PLANS)
def test_arrays_are_read_by_bash(tmp_path: Path, name: str) -> None:
    """Tests quotes: layout strings and lists reach the program as they are."""
    exported = plan(tmp_path, name)
    words = array(megatron_lm(exported, "test"), "MESHPLAN_ARGS")
    assert words.count("--tensor-model-parallel-size") == 1
    overrides = array(megatron_bridge(exported, "test"), "MESHPLAN_OVERRIDES")
    names = [one.partition("=")[0] for one in overrides]
    assert len(names) == len(set(names)), "each field once"
    pipeline = exported.data["pipeline"]["layout"] if exported.layout.pp > 1 else None
    if pipeline is None:
        assert "--pipeline-model-parallel-layout" not in words
        assert "model.pipeline_model_parallel_layout=null" in overrides
    else:
        assert words[words.index("--pipeline-model-parallel-layout") + 1] == pipeline
        assert f'model.pipeline_model_parallel_layout="{pipeline}"' in overrides


def test_flags_in_full(tmp_path: Path) -> None:
    """Tests the whole text for the published layout of DeepSeek-V3, as a person reads it."""
    text = megatron_lm(plan(tmp_path, "published"), "meshplan 1.2.3")
    head, _, rest = text.partition("MESHPLAN_ARGS=(")
    assert head.splitlines()[0] == "# Written by meshplan 1.2.3."
    assert "# deepseek: DeepSeek-V3 671B-A37B, 4,096 tokens, fp8-block, on 256 x H100 SXM" in head
    assert head.splitlines()[-1] == "# dp 32, edp 1, ga 256; for megatron-core 0.19"
    assert rest.splitlines()[1:] == [
        "    # degrees",
        "    --tensor-model-parallel-size 1",
        "    --context-parallel-size 1",
        "    --pipeline-model-parallel-size 8",
        "    --expert-model-parallel-size 32",
        "    --expert-tensor-parallel-size 1",
        "    --pipeline-model-parallel-layout 'Et|(tt|)*30mL'",
        "    # batch",
        "    --micro-batch-size 1",
        "    --global-batch-size 8192",
        "    --seq-length 4096",
        "    --max-position-embeddings 4096",
        "    # memory",
        "    --recompute-granularity selective",
        "    --recompute-modules layernorm mla_up_proj mlp moe",
        "    --optimizer-cpu-offload",
        "    --optimizer-offload-fraction 1",
        "    # experts",
        "    --moe-grouped-gemm",
        "    --moe-token-dispatcher-type flex",
        "    --moe-flex-dispatcher-backend deepep",
        "    # number formats",
        "    --bf16",
        "    --fp8-format hybrid",
        "    --fp8-recipe blockwise",
        "    # optimizer",
        "    --use-distributed-optimizer",
        "    --overlap-grad-reduce",
        "    --overlap-param-gather",
        "    --use-precision-aware-optimizer",
        "    --exp-avg-dtype bf16",
        "    --exp-avg-sq-dtype bf16",
        "    --main-grads-dtype bf16",
        "    # recipe",
        "    --cross-entropy-loss-fusion",
        "    --hidden-dropout 0",
        ")",
    ]


@pytest.mark.parametrize(
    ("version", "words", "full"),
    [
        ("0.19", "--cuda-graph-modules", ["full_iteration"]),
        ("0.18", "--cuda-graph-modules", ["full_iteration"]),
        ("0.17", "--cuda-graph-scope", ["local", "--cuda-graph-scope", "full_iteration"]),
    ],
)
def test_graphs_have_the_name_of_their_release(
    tmp_path: Path, version: str, words: str, full: list[str]
) -> None:
    """Tests the flag that was renamed in 0.18, and what captures a full iteration."""
    framework = {"version": version}
    flags = array(
        megatron_lm(plan(tmp_path, "hybridep and graphs", framework=framework), "test"),
        "MESHPLAN_ARGS",
    )
    place = flags.index(words)
    assert flags[place - 2 : place] == ["--cuda-graph-impl", "transformer_engine"]
    assert flags[place + 1 : place + 4] == ["attn", "moe_router", "moe_preprocess"]
    options = {"cuda_graphs": "full_iteration"}
    whole = plan(tmp_path, "full recompute", framework=framework, options=options)
    flags = array(megatron_lm(whole, "test"), "MESHPLAN_ARGS")
    place = flags.index("--cuda-graph-impl")
    assert flags[place + 1 : place + 1 + len(full)] == full


@pytest.mark.parametrize(
    ("name", "changes", "variables"),
    [
        ("published", {}, {}),
        ("half of the optimizer", {}, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}),
        ("two meshes", {}, {}),
        (
            "hybridep and graphs",
            {},
            {
                "NVLINK_DOMAIN_SIZE": "72",
                "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": "32",
                "USE_MNNVL": "1",
                "NCCL_GRAPH_REGISTER": "0",
            },
        ),
        (
            "overlap of experts",
            {},
            {
                "CUDA_DEVICE_MAX_CONNECTIONS": "32",
                "NVLINK_DOMAIN_SIZE": "72",
                "NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN": "8",
                "USE_MNNVL": "1",
            },
        ),
        (
            "activations on the host",
            {},
            {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "NVTE_CPU_OFFLOAD_V1": "1"},
        ),
        (
            "activations on the host",
            {"framework": {"transformer_engine": "2.8"}},
            {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
        ),
    ],
)
def test_environment_is_what_the_plan_needs(
    tmp_path: Path, name: str, changes: dict[str, dict[str, str]], variables: dict[str, str]
) -> None:
    """Tests each variable where it is needed, and nowhere else."""
    exported = plan(tmp_path, name, **changes)
    found = environment(exported.problem, exported.layout)
    assert {one.name: one.value for one in found} == variables
    for text in (megatron_lm(exported, "test"), megatron_bridge(exported, "test")):
        lines = [line for line in text.splitlines() if line.startswith("export ")]
        assert [line.partition("  # ")[0] for line in lines] == [
            f"export {key}={value}" for key, value in variables.items()
        ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "a.b=true"),
        (None, "a.b=null"),
        (4, "a.b=4"),
        (0.5, "a.b=0.5"),
        ("hybrid", "a.b=hybrid"),
        ("null", 'a.b="null"'),
        ("8", 'a.b="8"'),
        ("Et*3|(tt|)*29m|L", 'a.b="Et*3|(tt|)*29m|L"'),
        ('a"\\', 'a.b="a\\"\\\\"'),
        ((), "a.b=[]"),
        ((2, 16), "a.b=[2,16]"),
        (("moe", "a2a+p2p"), 'a.b=[moe,"a2a+p2p"]'),
    ],
)
def test_override_texts(value: object, text: str) -> None:
    """Tests values in Hydra's grammar: strings that look like something else are quoted."""
    assert override_text("a.b", value) == text  # type: ignore[arg-type]

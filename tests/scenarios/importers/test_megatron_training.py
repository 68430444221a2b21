"""The training recipe of Megatron arguments, and activations on the host."""

from __future__ import annotations

import pytest

from meshplan.constraints.problem import QUANTUM_BYTES
from meshplan.scenarios import Scenario, from_mapping
from meshplan.scenarios.importers import read_arguments
from meshplan.scenarios.importers.agreement import with_recipe
from meshplan.solver.check import check
from tests.scenarios.importers.arguments import part, refusal


def _notes(text: str) -> str:
    return "\n".join(part(text).notes)


# -- defaults of the command line --------------------------------------------------------------


def test_defaults_of_a_plain_command_line() -> None:
    """Tests a command with nothing given: Megatron-LM's own defaults hold, and each is told."""
    made = part("x --bf16 --tensor-model-parallel-size 2")
    assert made.training == {
        "gradient_dtype": "fp32",
        "moment_dtype": "fp32",
        "distributed_optimizer": False,
        "cross_entropy": "unfused",
        "sequence_parallel": False,
        "hidden_dropout": 0.1,
    }
    told = "\n".join(made.notes)
    for words in (
        "--use-distributed-optimizer not given: every data-parallel rank keeps the whole",
        "--cross-entropy-loss-fusion not given: the cross entropy is unfused",
        "--sequence-parallel not given with tp = 2: TP ranks do not share the sequence",
        "--hidden-dropout not given: Megatron-LM takes 0.1",
    ):
        assert words in told
    assert made.options["activation_offload"] == "none"


def test_a_recipe_that_is_given_leaves_nothing_to_tell() -> None:
    """Tests the flags of a usual recipe: no default is taken, and none is told."""
    made = part(
        "x --bf16 --tensor-model-parallel-size 2 --sequence-parallel --use-distributed-optimizer "
        "--cross-entropy-loss-fusion --hidden-dropout 0 --attention-backend flash "
        "--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
    )
    assert made.training == {
        "gradient_dtype": "bf16",
        "moment_dtype": "bf16",
        "distributed_optimizer": True,
        "cross_entropy": "native",
        "attention_backend": "fused",
        "sequence_parallel": True,
        "hidden_dropout": 0.0,
    }
    assert not any("--" in note for note in made.notes)


def test_a_short_string_names_no_recipe() -> None:
    """Tests that tp4_pp2 says nothing of a framework: no default is taken."""
    made = part("tp4_pp2_ep8")
    assert (made.training, made.options) == ({}, {})


# -- one setting each --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("--tensor-model-parallel-size 4", False),
        ("--tensor-model-parallel-size 4 --sequence-parallel", True),
        ("--tensor-model-parallel-size 1", None),  # Megatron-LM turns it off, and nothing is shared
        ("--sequence-parallel", None),
        ("", None),  # TP is 1
    ],
)
def test_sequence_parallel_where_tp_is_above_one(flags: str, value: bool | None) -> None:
    """Tests that sequence parallelism is a question with several TP ranks only."""
    assert part(f"x --bf16 {flags}").training.get("sequence_parallel") is value


def test_sequence_parallel_of_experts_is_told_and_judged() -> None:
    """Tests that experts with TP and without it are refused by their rule, as by Megatron-LM."""
    text = (
        "x --bf16 --tensor-model-parallel-size 2 --expert-tensor-parallel-size 1 --num-experts 8 "
        "--moe-token-dispatcher-type alltoall --micro-batch-size 1 --global-batch-size 8"
    )
    made = part(text)
    assert "which Megatron-LM refuses in a mixture of experts" in "\n".join(made.notes)
    scenario, _ = with_recipe(_scenario(), made)
    broken = [one.rule for one in check(scenario, made.stated_layout()).violations]
    assert broken == ["moe-tp-needs-sp"]


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("--cross-entropy-loss-fusion", "native"),  # Megatron-LM's default implementation
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl native", "native"),
        ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "te"),
        ("--cross-entropy-fusion-impl te", "unfused"),  # without the switch it does nothing
    ],
)
def test_cross_entropy(flags: str, value: str) -> None:
    """Tests switch and implementation of the fused cross entropy."""
    assert part(f"x --bf16 {flags}").training["cross_entropy"] == value


@pytest.mark.parametrize(
    ("flags", "value"),
    [
        ("", None),  # auto: Transformer Engine picks a fused one
        ("--attention-backend auto", "fused"),
        ("--attention-backend fused", "fused"),
        ("--attention-backend unfused", "unfused"),
        ("--attention-backend local", "unfused"),  # Megatron-Core's own, which keeps its scores
    ],
)
def test_attention_backend(flags: str, value: str | None) -> None:
    """Tests which backends keep the scores; those that do are told."""
    made = part(f"x --bf16 {flags}")
    assert made.training.get("attention_backend") == value
    assert ("keeps its scores" in "\n".join(made.notes)) is (value == "unfused")


@pytest.mark.parametrize(
    ("written", "value"), [("0", 0.0), ("0.0", 0.0), (".1", 0.1), ("5e-2", 0.05), ("1", 1.0)]
)
def test_hidden_dropout(written: str, value: float) -> None:
    """Tests the spellings of a fraction that Python's float takes."""
    assert part(f"x --hidden-dropout {written}").training["hidden_dropout"] == value


@pytest.mark.parametrize(
    ("flags", "value"), [("", None), ("--no-gradient-accumulation-fusion", False)]
)
def test_gradient_accumulation_fusion(flags: str, value: bool | None) -> None:
    """Tests the flag that turns it off; it is on by default, as in a scenario."""
    assert part(f"x --bf16 {flags}").training.get("gradient_accumulation_fusion") is value


def test_fsdp_shares_the_optimizer_otherwise() -> None:
    """Tests that Megatron-FSDP without the distributed optimizer is told, and not counted whole."""
    made = part("x --bf16 --use-megatron-fsdp")
    assert "distributed_optimizer" not in made.training
    assert "--use-megatron-fsdp is not modelled" in "\n".join(made.notes)


@pytest.mark.parametrize(
    ("flags", "method", "layers", "told"),
    [
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
         "uniform", 1, False),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 4",
         "uniform", 4, True),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 2",
         "block", 2, True),
        ("--recompute-method block --recompute-num-layers 2", None, None, False),  # nothing is
    ],
)  # fmt: skip
def test_full_recompute(flags: str, method: str | None, layers: int | None, told: bool) -> None:
    """Tests method and layers; what the search does not choose is told."""
    made = part(f"x --bf16 {flags}")
    assert made.training.get("recompute_method") == method
    assert made.training.get("recompute_num_layers") == layers
    assert ("solve chooses uniform of one layer only" in "\n".join(made.notes)) is told


# -- activations on the host -------------------------------------------------------------------

_ON = "x --bf16 --fine-grained-activation-offloading"


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ("x --bf16", "none", ""),
        (f"{_ON} --offload-modules moe_act expert_fc1", ["expert_fc1", "moe_act"], ""),
        (f"{_ON} --offload-modules=core_attn,attn_proj", ["core_attn", "attn_proj"], ""),
        (f"{_ON} --offload-modules gdp_qkv moe_act", ["moe_act"], "gdp_qkv' is not mod"),
        (f"{_ON} --offload-modules fused_group_mlp", "none", "fused_group_mlp"),
        ("x --bf16 --offload-modules moe_act", "none", "does nothing"),
        (f"{_ON} --offload-modules moe_act --activation-offload-fraction 0.5", ["moe_act"],
         "--activation-offload-fraction 0.5 is not modelled: counted as 1"),
    ],
)  # fmt: skip
def test_activation_offload(text: str, value: object, words: str) -> None:
    """Tests the modules whose inputs are offloaded, and what is told of the others."""
    assert part(text).options["activation_offload"] == value
    assert words in _notes(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_ON, "without --offload-modules"),
        (f"{_ON} --offload-modules attn_proj", "attn_proj without core_attn"),
        ("x --attention-backend flesh", "must be auto, flash, fused, unfused or local"),
        ("x --hidden-dropout 1.5", "must be from 0 to 1"),
        ("x --recompute-granularity full --recompute-num-layers 0", "must be from 1 to"),
    ],
)
def test_what_megatron_refuses_is_refused(text: str, words: str) -> None:
    """Tests that each message has its line."""
    error = refusal(text)
    assert words in error.message and error.line == 1


# -- what was not read, and a scenario ---------------------------------------------------------


@pytest.mark.parametrize(
    ("flag", "key"),
    [
        ("--hidden-dropuot 0", "hidden_dropout"),
        ("--use-distributed-optimiser", "distributed_optimizer"),
        ("--sequence-paralel", "sequence_parallel"),
        ("--cross-entropy-loss-fusoin", "cross_entropy"),
    ],
)
def test_misspelt_settings_stay_open(flag: str, key: str) -> None:
    """Tests that a default is not taken where a flag looks like the setting's."""
    made = part(f"x --bf16 --tensor-model-parallel-size 2 {flag}")
    assert key not in made.training
    assert any(note.startswith("left open, as") and key in note for note in made.notes)


def _scenario(**changes: object) -> Scenario:
    return from_mapping(
        {
            "meshplan": 1,
            "name": "case",
            "model": "toy-moe",
            "cluster": {"preset": "h100-hgx", "gpus": 8},
            "workload": {"seq_len": 4096, "global_batch_size": 8},
            **changes,
        }
    )


def test_a_scenario_takes_the_recipe_where_it_has_none() -> None:
    """Tests that the scenario's own training decides, and the arguments' offload."""
    made = part(f"{_ON} --offload-modules moe_act --hidden-dropout 0.2 --use-distributed-optimizer")
    scenario, said = with_recipe(_scenario(training={"hidden_dropout": 0.0}), made)
    assert scenario.training.hidden_dropout == 0.0, "written in the scenario"
    assert scenario.training.cross_entropy == "unfused", "the command line's default"
    assert scenario.options.activation_offload == ("moe_act",)
    assert len(said) == 1 and "activation_offload moe_act" in said[0]
    assert "activation_offload" not in made.stated_layout(), "no decision of a layout"


def test_masks_of_dropout_cost_memory() -> None:
    """Tests that the command line's default reaches the memory: a byte an element, twice a layer.

    toy-dense with 4096 tokens on a rank: 4096 x hidden bytes behind attention and behind the MLP.
    """
    text = (
        "x --bf16 --micro-batch-size 1 --global-batch-size 8 --use-distributed-optimizer "
        "--cross-entropy-loss-fusion"
    )
    activations = []
    for flags in ("--hidden-dropout 0", ""):
        made = read_arguments(f"{text} {flags}").to_scenario_part()
        scenario, _ = with_recipe(_scenario(model="toy-dense"), made)
        report = check(scenario, made.stated_layout())
        assert report.cost is not None, report.violations
        activations.append(report.cost.ranks[0].activations)
    card = report.problem.model
    added = (activations[1] - activations[0]) * QUANTUM_BYTES
    # Each half of a layer is rounded up to quanta.
    assert added == pytest.approx(
        2 * card.layers * 4096 * card.hidden, abs=2 * card.layers * QUANTUM_BYTES
    )

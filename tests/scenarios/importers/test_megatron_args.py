from __future__ import annotations

from pathlib import Path

import pytest

from meshplan.scenarios import InputError, from_mapping
from meshplan.scenarios.importers import (
    MegatronArguments,
    read_arguments,
    read_arguments_file,
)
from tests.scenarios.importers.arguments import part

SCRIPT = """\
#!/bin/bash
# --tensor-model-parallel-size 64 is only a comment
export NCCL_DEBUG=WARN
TP=2; PP=8
EP=${EP:-32}
CP=${1:-4}
MODEL_ARGS=(
    --num-layers 61
    --hidden-size=7168      # a comment
    --num-experts "256"
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size ${TP}
    --pipeline_model_parallel_size=$PP
    --context-parallel-size "$CP"
    --expert-model-parallel-size $EP
    --expert-tensor-parallel-size 1
    --num-virtual-stages-per-pipeline-rank 4
    --sequence-parallel --use-distributed-optimizer
)
TRAINING_ARGS="
    --micro-batch-size 1 \\
    --global-batch-size 256 \\
    --seq-length 131072 --bf16 \\
    --lr ${LR} --data-path $DATA
"
torchrun --nproc_per_node 8 \\
    pretrain_gpt.py "${MODEL_ARGS[@]}" ${PARALLEL_ARGS[@]} $TRAINING_ARGS 2>&1 | tee log.txt
"""
DEGREES = {"tp": 2, "pp": 8, "cp": 4, "ep": 32, "etp": 1, "vpp": 4, "mbs": 1, "cp_comm": "p2p"}


def settings(arguments: MegatronArguments) -> dict[str, object]:
    """Settings by name."""
    return {one.name: one.value for one in arguments.settings}


def test_launch_script() -> None:
    """Tests a whole script: arrays, variables, defaults, both spellings, a string of flags."""
    arguments = read_arguments(SCRIPT, "launch.sh")
    assert arguments.form == "script"
    made = arguments.to_scenario_part()
    assert made.layout == DEGREES
    assert made.workload == {"seq_len": 131072, "global_batch_size": 256, "precision": "bf16"}
    assert made.options["pipeline_layout"] == "even"
    assert [one.name for one in arguments.unknown] == ["--nproc_per_node", "--lr", "--data-path"]
    lines = {one.name: one.line for one in arguments.settings}
    assert lines["hidden_size"] == 9 and lines["pipeline_model_parallel_size"] == 14


@pytest.mark.parametrize(
    "text",
    [
        "--tensor-model-parallel-size 4",
        "--tensor_model_parallel_size 4",
        "--tensor-model-parallel-size=4",
        "--tensor-model-parallel-size \\\n  4",
        "--tensor-model-parallel-size '4'",
        '--tensor-model-parallel-size="4"',
        "A=(--tensor-model-parallel-size 4)",
        "TP=4\n--tensor-model-parallel-size $TP",
        "TP=4 && x --tensor-model-parallel-size ${TP}",
        "x --tensor-model-parallel-size ${TP:-4}",
        "x --tensor-model-parallel-size ${TP:=4}",
        "x --tensor-model-parallel-size ${TP-${OTHER:-4}}",
        'x --tensor-model-parallel-size "${TP:-"4"}"',
        ": ${TP:=4}\nx --tensor-model-parallel-size $TP",
        "export TP=4 PP=2\nx --tensor-model-parallel-size $TP",
        "declare -i TP=4\nx --tensor-model-parallel-size $TP",
        "A=(--tensor-model-parallel-size)\nA+=(4)\nx ${A[@]}",
        'A=(--tensor-model-parallel-size 4)\nB=("${A[@]}" --bf16)\nx "${B[@]}"',
        'O="--tensor-model-parallel-size 4"\nx $O',
        'O="--bf16"\nO+=" --tensor-model-parallel-size 4"\nsh -c "x $O"',
        'O="--bf16"; O="$O --tensor-model-parallel-size 4"; eval "x $O"',
        "sbatch <<EOF\nx --tensor-model-parallel-size 4\nEOF",
        "cat > a <<'EOF'\ndon't read this\nEOF\nx --tensor-model-parallel-size 4",
        "if true; then\n  x --tensor-model-parallel-size 4\nfi",
        "(cd a; x --tensor-model-parallel-size 4) > log",
        "srun -l bash -c 'x --tensor-model-parallel-size 4' &",
        "x --tensor-model-parallel-size 4 --tensor-model-parallel-size 4",
        "MODEL_ARGS:\n  --tensor-model-parallel-size: 4\n  --bf16: true",
        "TP=2\nTP=4\nx --tensor-model-parallel-size $TP",
        "if [ -z $TP ]; then TP=4; fi\nx --tensor-model-parallel-size $TP",
        "case $1 in --tensor-model-parallel-size) TP=$2;; *) ;; esac\n"
        "x --tensor-model-parallel-size 4",
        "TP=4\nwhile [ $# -gt 0 ]; do case $1 in -t) TP=$2;; esac; shift; done\n"
        "x --tensor-model-parallel-size $TP",
        "\ufeff--tensor-model-parallel-size 4\r\n".removeprefix("\ufeff"),
        "  tensor_model_parallel_size ...................... 4",
        "0:   tensor_model_parallel_size ...................... 4\n"
        "1:   tensor_model_parallel_size ...................... 4",
        "tp4",
        "TP4PP2EP8",
        "tp=4, pp=2",
    ],
)
def test_spellings(text: str) -> None:
    """Tests that tensor parallelism of 4 is found however it is written."""
    assert part(text).layout["tp"] == 4


@pytest.mark.parametrize(
    ("text", "layout"),
    [
        ("tp1_pp2_cp1_vp24_ep2", {"tp": 1, "pp": 2, "cp": 1, "vpp": 24, "ep": 2}),
        ("TP4PP2EP8", {"tp": 4, "pp": 2, "ep": 8}),
        ("tp8-pp16-vpp6-mbs1-gbs512", {"tp": 8, "pp": 16, "vpp": 6, "mbs": 1}),
        ("TP2 CP4 ETP1 DP8 h100", {"tp": 2, "cp": 4, "etp": 1, "dp": 8}),
    ],
)
def test_short_strings(text: str, layout: dict[str, int]) -> None:
    """Tests strings of degrees: what they leave out stays open, as they name no framework."""
    made = part(text)
    assert made.layout == layout
    assert made.options == {}


def test_unknown_piece_of_a_short_string() -> None:
    """Tests that a piece that is no degree is listed."""
    assert [one.name for one in read_arguments("tp2_pp4_foo_zz7").unknown] == ["foo", "zz7"]


DUMP = """\
[rank0]: using world size: 256, data-parallel size: 4
------------------------ arguments ------------------------
  attention_backend ............................... AttnBackend.flash
  bf16 ............................................ True
  context_parallel_size ........................... 2
  cuda_graph_impl ................................. transformer_engine
  cuda_graph_modules .............................. [<Scope.attn: 1>, <Scope.moe_router: 4>]
  cp_comm_type .................................... ['p2p']
  cross_entropy_fusion_impl ....................... te
  cross_entropy_loss_fusion ....................... True
  data_parallel_size .............................. 4
  exp_avg_dtype ................................... torch.bfloat16
  exp_avg_sq_dtype ................................ torch.bfloat16
  expert_model_parallel_size ...................... 32
  expert_tensor_parallel_size ..................... 1
  fine_grained_activation_offloading .............. True
  fp8 ............................................. None
  global_batch_size ............................... 512
  gradient_accumulation_fusion .................... True
  hidden_dropout .................................. 0.0
  lr .............................................. 0.0003
  main_grads_dtype ................................ torch.float32
  micro_batch_size ................................ 1
  moe_flex_dispatcher_backend ..................... hybridep
  moe_token_dispatcher_type ....................... flex
  num_experts ..................................... 256
  num_layers ...................................... 64
  num_virtual_stages_per_pipeline_rank ............ None
  offload_modules ................................. ['moe_act', 'core_attn']
  optimizer_cpu_offload ........................... True
  optimizer_offload_fraction ...................... 0.5
  pipeline_model_parallel_layout .................. None
  pipeline_model_parallel_size .................... 16
  recompute_granularity ........................... selective
  recompute_modules ............................... ['moe_act', 'mla_up_proj']
  seq_length ...................................... 4096
  sequence_parallel ............................... True
  tensor_model_parallel_size ...................... 2
  use_distributed_optimizer ....................... True
  use_precision_aware_optimizer ................... True
  virtual_pipeline_model_parallel_size ............ 2
  world_size ...................................... 256
-------------------- end of arguments ---------------------
"""


def test_printed_arguments() -> None:
    """Tests the dump that Megatron-LM prints, with its lists, dtypes and Nones."""
    arguments = read_arguments(DUMP, "log.txt")
    assert arguments.form == "dump"
    made = arguments.to_scenario_part()
    assert made.layout == {
        "tp": 2,
        "cp": 2,
        "pp": 16,
        "ep": 32,
        "etp": 1,
        "vpp": 2,
        "mbs": 1,
        "cp_comm": "p2p",
    }
    assert made.options == {
        "recompute": ["moe_act", "mla_up_proj"],
        "optimizer_offload": 0.5,
        "activation_offload": ["core_attn", "moe_act"],
        "dispatcher": "hybridep",
        "cuda_graphs": ["attn", "moe_router"],
        "pipeline_layout": "even",
    }
    assert made.training == {
        "gradient_dtype": "fp32",
        "moment_dtype": "bf16",
        "precision_aware_optimizer": True,
        "distributed_optimizer": True,
        "cross_entropy": "te",
        "attention_backend": "fused",
        "sequence_parallel": True,
        "hidden_dropout": 0.0,
        "gradient_accumulation_fusion": True,
    }
    assert "the run had 256 GPUs and dp = 4" in made.notes
    assert arguments.notes == ("1 arguments of the dump do not matter here",)  # lr


def test_parts_make_a_scenario() -> None:
    """Tests that the sections are what a scenario file may hold."""
    for text in (SCRIPT, DUMP, "tp1_pp2_ep4"):
        base = {"seq_len": 4096, "global_batch_size": 64}
        sections = part(text).sections()
        workload = {**base, **sections.get("workload", {})}
        scenario = from_mapping(
            {
                "meshplan": 1,
                "name": "case",
                "model": "deepseek-v3",
                "cluster": {"preset": "h100-hgx", "gpus": 256},
                **sections,
                "workload": workload,
            }
        )
        assert scenario.layout.pp is not None


def test_unknown_flags_are_listed() -> None:
    """Tests that flags that are not read are listed with their line, and misspellings told."""
    arguments = read_arguments("x --lr 1 \\\n --tensor-model-paralel-size 4 --bf16", "launch.sh")
    assert [(one.name, one.line, one.near) for one in arguments.unknown] == [
        ("--lr", 1, None),
        ("--tensor-model-paralel-size", 2, "--tensor-model-parallel-size"),
    ]


def test_notes_tell_what_was_passed_over() -> None:
    """Tests notes: conditions, options of the command line, unused arrays, sourced files."""
    text = (
        "source env.sh\nA=(--seq-length 4)\nTP=2\nif a; then B=(--fp16); fi\n"
        "while b; do TP=$2; done\nx --bf16 ${B[@]} --tensor-model-parallel-size $TP $EXTRA\n"
    )
    told = "\n".join(read_arguments(text).notes)
    assert "line 1: another script is sourced" in told
    assert "line 2: no command uses $A" in told
    assert "line 4: --fp16 stands under a condition; taken as given" in told
    assert "line 5: $TP may be changed under a condition; '2' of line 3 is taken" in told
    assert "line 6: $EXTRA, which this file does not set: not read; flags" in told


@pytest.mark.parametrize("flag", ["--sequence-parallel", "--bf16", "--moe-permute-fusion"])
def test_word_behind_a_switch_is_a_gap(flag: str) -> None:
    """Tests that a word that is not read is told, and no degree is taken as Megatron's default."""
    arguments = read_arguments(f"x --tensor-model-parallel-size 2 {flag} $EXTRA\n")
    assert len(arguments.gaps) == 1 and "$EXTRA" in arguments.gaps[0]
    assert arguments.to_scenario_part().layout == {"tp": 2}


def test_misnamed_degree_stays_open() -> None:
    """Tests that --tensor-parallel-size is told with the right name, and tp is not taken as 1."""
    arguments = read_arguments("x --bf16 --tensor-parallel-size 4\n")
    assert [one.near for one in arguments.unknown] == ["--tensor-model-parallel-size"]
    assert not {"tp", "etp"} & set(arguments.to_scenario_part().layout)


def test_string_that_appends_to_itself() -> None:
    """Tests that OPT="$OPT --more" keeps what was there, and tells what a condition adds."""
    text = (
        'O="--bf16"\nO="$O --tensor-model-parallel-size 4"\n'
        'if a; then O="$O --context-parallel-size 8"; fi\nx $O\n'
    )
    arguments = read_arguments(text)
    assert arguments.gaps == ()
    layout = arguments.to_scenario_part().layout
    assert (layout["tp"], layout["cp"]) == (4, 8)
    told = "\n".join(arguments.notes)
    assert "line 3: --context-parallel-size stands under a condition; taken as given" in told


@pytest.mark.parametrize("between", [" \n", "\n\n", "\n # a comment\n"])
def test_broken_continuation_is_told(between: str) -> None:
    """Tests flags behind a blank, an empty line or a comment within a continued command."""
    arguments = read_arguments(f"x --bf16 \\{between} --tensor-model-parallel-size 4\n")
    assert settings(arguments) == {"bf16": True, "tensor_model_parallel_size": 4}
    if between != "\n\n":
        assert any("bash ends" in note for note in arguments.notes)


def test_model_figures_need_no_value() -> None:
    """Tests that a model's figure from the environment is passed over: the scenario has its own."""
    arguments = read_arguments("x --num-layers $LAYERS --bf16")
    assert settings(arguments) == {"bf16": True}
    assert "--num-layers is $LAYERS, which this file does not set; not read" in arguments.notes[0]


def test_files(tmp_path: Path) -> None:
    """Tests that a file, and a short string in place of one, are read."""
    path = tmp_path / "launch.sh"
    path.write_text(SCRIPT, "utf-8")
    assert read_arguments_file(path).to_scenario_part().layout == DEGREES
    assert read_arguments_file("tp2_pp4").get("pipeline_model_parallel_size") == 4
    with pytest.raises(InputError, match="does not exist"):
        read_arguments_file(tmp_path / "none.sh")
    path.write_bytes(b"\xff\xfe--bf16")
    with pytest.raises(InputError, match="not UTF-8"):
        read_arguments_file(path)

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios import InputError, from_mapping
from meshplan.scenarios.importers import (
    MegatronArguments,
    ScenarioPart,
    read_arguments,
    read_arguments_file,
)
from meshplan.scenarios.importers.megatron_flags import FORMS, spelt

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


def part(text: str, layers: int | None = None) -> ScenarioPart:
    """What a text means in a scenario."""
    return read_arguments(text, "launch.sh").to_scenario_part(layers)


def refusal(text: str) -> InputError:
    """The error of reading or translating a text."""
    with pytest.raises(InputError) as caught:
        part(text)
    return caught.value


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
  bf16 ............................................ True
  context_parallel_size ........................... 2
  cuda_graph_impl ................................. transformer_engine
  cuda_graph_modules .............................. [<Scope.attn: 1>, <Scope.moe_router: 4>]
  cp_comm_type .................................... ['p2p']
  data_parallel_size .............................. 4
  exp_avg_dtype ................................... torch.bfloat16
  exp_avg_sq_dtype ................................ torch.bfloat16
  expert_model_parallel_size ...................... 32
  expert_tensor_parallel_size ..................... 1
  fp8 ............................................. None
  global_batch_size ............................... 512
  lr .............................................. 0.0003
  main_grads_dtype ................................ torch.float32
  micro_batch_size ................................ 1
  moe_flex_dispatcher_backend ..................... hybridep
  moe_token_dispatcher_type ....................... flex
  num_experts ..................................... 256
  num_layers ...................................... 64
  num_virtual_stages_per_pipeline_rank ............ None
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
        "dispatcher": "hybridep",
        "cuda_graphs": ["attn", "moe_router"],
        "pipeline_layout": "even",
    }
    assert made.training == {
        "gradient_dtype": "fp32",
        "moment_dtype": "bf16",
        "precision_aware_optimizer": True,
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


# -- defaults of Megatron-LM -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "etp", "words"),
    [
        ("--tensor-model-parallel-size 4 --num-experts 8", 4, "etp = tp = 4"),
        ("--tensor-model-parallel-size 4 --expert-tensor-parallel-size 1", 1, ""),
        ("--expert-model-parallel-size 8", 1, "etp = tp = 1"),
        ("--bf16", 1, "TP, CP, PP, EP not given: Megatron-LM takes 1"),
    ],
)
def test_expert_tensor_default(text: str, etp: int, words: str) -> None:
    """Tests that an absent ETP is TP, as Megatron-LM's validate_args sets it, and is told."""
    made = part(text)
    assert made.layout["etp"] == etp
    assert words in "\n".join(made.notes)


@pytest.mark.parametrize(
    ("flags", "layers", "vpp"),
    [
        ("", None, 1),
        ("--num-virtual-stages-per-pipeline-rank 4", None, 4),
        ("--num-layers 64 --num-layers-per-virtual-pipeline-stage 2", None, 8),  # 64/4/2
        ("--num-layers-per-virtual-pipeline-stage 2", 48, 6),  # 48/4/2, layers of the scenario
        (
            "--num-layers 62 --account-for-embedding-in-pipeline-split "
            "--account-for-loss-in-pipeline-split --num-layers-per-virtual-pipeline-stage 4",
            None,
            4,  # (62 + 2)/4/4
        ),
        ("--pipeline-model-parallel-layout 'Et*3|(tt|)*29m|L'", None, 8),  # 32 stages on 4 ranks
        ("--pipeline-model-parallel-layout 'E|t|*1t|L'", None, 1),
        ("--num-layers-per-virtual-pipeline-stage 2", None, None),  # open: layers unknown
    ],
)
def test_virtual_stages(flags: str, layers: int | None, vpp: int | None) -> None:
    """Tests the three ways to say how many virtual stages a rank has, on 4 pipeline ranks."""
    text = f"x --pipeline-model-parallel-size 4 {flags}"
    assert part(text, layers).layout.get("vpp") == vpp


@pytest.mark.parametrize(
    ("flags", "layout"),
    [
        ("--decoder-first-pipeline-num-layers 12", "Et*12|t*16|t*16|t*16L"),
        ("--decoder-last-pipeline-num-layers 12 --mtp-num-layers 1", "Et*16|t*16|t*16|t*12mL"),
        (
            "--decoder-first-pipeline-num-layers 12 --decoder-last-pipeline-num-layers 8",
            "Et*12|t*20|t*20|t*8L",
        ),
        ("--account-for-loss-in-pipeline-split", "Et*15|t*15|t*15|t*14L"),
        (
            "--decoder-last-pipeline-num-layers 12 --num-virtual-stages-per-pipeline-rank 2",
            "Et*8|t*8|t*8|t*6|t*8|t*8|t*8|t*6L",
        ),
    ],
)
def test_uneven_ends(flags: str, layout: str) -> None:
    """Tests that uneven ends become a layout string: layers shared out as Megatron-LM does."""
    layers = {"Et*12|t*20|t*20|t*8L": 60, "Et*15|t*15|t*15|t*14L": 59}.get(layout, 60)
    text = f"x --pipeline-model-parallel-size 4 --num-layers {layers} {flags}"
    assert part(text).options["pipeline_layout"] == layout


@pytest.mark.parametrize(
    ("flags", "recompute"),
    [
        ("", "none"),
        ("--recompute-modules moe", "none"),  # no granularity: nothing is recomputed
        ("--recompute-granularity selective", ["core_attn"]),
        ("--recompute-activations", ["core_attn"]),
        ("--recompute-granularity selective --recompute-modules mlp moe", ["mlp", "moe"]),
        ("--recompute-granularity selective --recompute-modules moe,mlp --bf16", ["mlp", "moe"]),
        ("--moe-layer-recompute", ["moe"]),
        ("--recompute-granularity full --recompute-method uniform", "full"),
        ("--recompute-granularity selective --recompute-modules mhc moe", ["moe"]),
    ],
)
def test_recompute(flags: str, recompute: object) -> None:
    """Tests granularity and modules of recompute, with Megatron-LM's defaults."""
    assert part(f"x --tensor-model-parallel-size 1 {flags}").options["recompute"] == recompute


@pytest.mark.parametrize(
    ("flags", "dispatcher"),
    [
        ("--moe-token-dispatcher-type alltoall", "alltoall"),
        ("--moe-token-dispatcher-type flex", "deepep"),
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep", "hybridep"),
        ("--moe-token-dispatcher-type flex --moe-enable-deepep", "deepep"),
        ("--moe-token-dispatcher-type allgather", None),  # not modelled: left open
        ("--moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep", None),
        ("", None),
    ],
)
def test_dispatcher(flags: str, dispatcher: str | None) -> None:
    """Tests the dispatcher; one that is not modelled is left open and told."""
    made = part(f"x --num-experts 8 {flags}")
    assert made.options.get("dispatcher") == dispatcher
    assert dispatcher is not None or any("not modelled" in note for note in made.notes)


@pytest.mark.parametrize(
    ("flags", "graphs", "told"),
    [
        ("", "none", False),
        ("--cuda-graph-scope attn", "none", False),  # without an implementation
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router",
         ["attn", "moe_router"], False),
        ("--external-cuda-graph --cuda-graph-modules mamba", ["mamba"], False),
        ("--cuda-graph-impl local --cuda-graph-modules attn,mlp", ["attn", "mlp"], False),
        ("--enable-cuda-graph", "none", True),  # whole layers
        ("--cuda-graph-impl local --cuda-graph-scope full", "none", True),
        ("--cuda-graph-impl full_iteration", "none", True),
    ],
)  # fmt: skip
def test_cuda_graphs(flags: str, graphs: object, told: bool) -> None:
    """Tests scopes of CUDA graphs under both names; whole layers are not modelled, and told."""
    made = part(f"x --bf16 {flags}")
    assert made.options["cuda_graphs"] == graphs
    assert any("CUDA graphs of" in note for note in made.notes) is told


@pytest.mark.parametrize(
    ("flags", "precision"),
    [
        ("--bf16", "bf16"),
        ("--bf16 --fp8-format hybrid", "fp8-tensor"),  # delayed scaling is the default recipe
        ("--bf16 --fp8-format hybrid --fp8-recipe tensorwise", "fp8-current"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe blockwise", "fp8-block"),
        ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", "mxfp8"),
        ("--bf16 --fp4-format e2m1 --fp4-recipe nvfp4", "nvfp4"),
        ("--fp16", None),
        ("--no-bf16", None),
    ],
)
def test_precision(flags: str, precision: str | None) -> None:
    """Tests number formats and recipes; fp16 and fp32 are not modelled and stay open."""
    assert part(f"x --seq-length 64 {flags}").workload.get("precision") == precision


@pytest.mark.parametrize(
    ("flags", "gradients", "moments"),
    [
        ("--bf16", "fp32", "fp32"),  # the command line's defaults
        ("--bf16 --grad-reduce-in-bf16", "bf16", "fp32"),
        ("--main-grads-dtype bf16 --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", "bf16", "bf16"),
        ("--exp-avg-dtype fp8 --exp-avg-sq-dtype fp8", "fp32", None),  # not modelled
        ("--exp-avg-dtype bf16", "fp32", None),  # one of each
    ],
)
def test_formats_of_the_state(flags: str, gradients: str, moments: str | None) -> None:
    """Tests formats of gradients and moments, which the command line keeps in fp32 by default."""
    training = part(f"x {flags}").training
    assert (training["gradient_dtype"], training.get("moment_dtype")) == (gradients, moments)


@pytest.mark.parametrize(
    ("flags", "offload"),
    [
        ("--bf16", 0.0),
        ("--optimizer-cpu-offload", 1.0),
        ("--optimizer-cpu-offload --optimizer-offload-fraction 0.25", 0.25),
        ("--optimizer-offload-fraction 0.25", 0.0),  # without the switch it does nothing
    ],
)
def test_offload(flags: str, offload: float) -> None:
    """Tests the fraction of the optimizer on the host."""
    assert part(f"x {flags}").options["optimizer_offload"] == offload


# -- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("x --context-parallel-size 2 \\\n --context_parallel_size 4", 2, "is 4 here, but 2 on li"),
        ("x --bf16\ny --no-bf16", 2, "false here, but true on line 1"),
        ("A=(--context-parallel-size 2\n--context-parallel-size 4)\nx ${A[@]}", 2, "2 on line 1"),
        ("if a\nthen x --seq-length 1\nelse\nx --seq-length 2\nfi", 4, "under a condition"),
        ("if a; then TP=2\nelse TP=4; fi\nx --seq-length $TP", 3, "'2' on line 1 and '4' on line"),
        ("case $M in\na) T=2;;\nb) T=4;;\nesac\nx --seq-length $T", 5, "as a condition decides"),
        ("x --seq-length", 1, "has no value"),
        ("x --seq-length --bf16", 1, "has no value"),
        ("x --seq-length abc", 1, "'abc', but must be an integer"),
        ("x --seq-length -4", 1, "must be an integer"),
        ("x --seq-length 4.5", 1, "'4.5'"),
        ("x --seq-length 99999999999999999999", 1, "must be an integer"),
        ("x --seq-length ٤", 1, "must be an integer"),
        ("x --tensor-model-parallel-size 0", 1, "is 0, but must be from 1"),
        ("x --bf16=maybe", 1, "is 'maybe', but is true or false"),
        ("x --optimizer-offload-fraction 1.5", 1, "is '1.5', but must be from 0 to 1"),
        ("x --recompute-granularity half", 1, "is 'half', but must be selective or full"),
        ("x --bf16 --fp8-format e4m3 --fp8-recipe none", 1, "--fp8-recipe is 'none'"),
        ("x --num-experts 8 --moe-token-dispatcher-type all2all", 1, "'all2all', but must be"),
        ("x --context-parallel-size 2 --cp-comm-type ring", 1, "--cp-comm-type is 'ring'"),
        ("x --pipeline-model-parallel-layout 'E$t|L'", 1, "is no layout string"),
        ("x --pipeline-model-parallel-size 3 --pipeline-model-parallel-layout 'Et|tL'", 1,
         "has 2 stages, which pp = 3 does not divide"),
        ("x --num-layers-per-virtual-pipeline-stage 2 \\\n"
         "--num-virtual-stages-per-pipeline-rank 2", 1, "Megatron-LM takes one"),
        ("x --num-layers 61 --pipeline-model-parallel-size 4 "
         "--num-layers-per-virtual-pipeline-stage 2", 1, "61 layers on pp = 4 ranks (15.25 each)"),
        ("x --num-layers 64 --pipeline-model-parallel-size 4 --decoder-last-pipeline-num-layers 1 "
         "--num-layers-per-virtual-pipeline-stage 2", 1, "Megatron-LM refuses that"),
    ],
)  # fmt: skip
def test_refusals_name_line_and_value(text: str, line: int, words: str) -> None:
    """Tests that contradictions and wrong values are refused with line, value and advice."""
    error = refusal(text)
    assert words in error.message
    assert (error.file, error.line) == ("launch.sh", line)
    assert error.advice


@pytest.mark.parametrize(
    "value",
    [
        "$(nproc)",
        "`nproc`",
        '"$(cat /etc/passwd | wc -l)"',
        "$((2*4))",
        "${TP%%,*}",
        "${#ARGS[@]}",
        "$TP",
        "$1",
        "${!NAME}",
        "${TP:?set it}",
        "${TP:-$(rm -rf /)}",
    ],
)
def test_nothing_is_run(value: str, tmp_path: Path) -> None:
    """Tests that a value that only running would give is refused, in quotes or not."""
    for text in (f"x --seq-length {value}", f"A=({value})\nx --seq-length ${{A[@]}}"):
        error = refusal(text)
        assert "would have to be run" in error.message or "does not set" in error.message
        assert "nothing in a script is run" in (error.advice or "")
    assert part(f"x --bf16 --save {value}").workload["precision"] == "bf16"  # matters to nobody


def test_nothing_is_executed(tmp_path: Path) -> None:
    """Tests that commands in a script leave no trace."""
    victim = tmp_path / "made"
    text = f"touch {victim}\nX=$(touch {victim})\nx --bf16 --save `touch {victim}` * ~ > {victim}\n"
    assert part(text).workload == {"precision": "bf16"}
    assert not victim.exists()


@pytest.mark.parametrize(
    "text",
    [
        "x --bf16 'open",
        'x --bf16 "open',
        "x --bf16 `open",
        "x --bf16 $(open",
        "x --bf16 ${open",
        "x --bf16 ${a:-$(b",
        'x --bf16 "$(a "b)"',
        "A=(--bf16",
        "cat <<EOF\n--bf16-thing",
    ],
)
def test_cut_off_scripts(text: str) -> None:
    """Tests that a script that ends within a quote, bracket or here-document is refused."""
    error = refusal(text)
    assert "not end" in error.message
    assert error.line is not None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello world",
        "--",
        "# --bf16",
        "echo --bf16 --seq-length 4",
        "--learning-rate 1",
        "a ... b",
        "\0--bf16",
        "--bf16 " + "x" * (1 << 20),
        "${A:-" * 50 + "}" * 50 + " --bf16",
        "$(" * 50 + ")" * 50 + " --bf16",
        "A=x\n" + "A=$A$A$A$A$A$A$A$A\n" * 30 + "x --bf16 $A",
        "A=(a a a a)\n" + 'A=("${A[@]}" "${A[@]}" "${A[@]}")\n' * 30 + 'x --bf16 "${A[@]}"',
        "A=(a)\n" + 'A+=("${A[@]}")\n' * 60 + "x --bf16",
    ],
)
def test_hostile_text_is_refused(text: str) -> None:
    """Tests that texts without arguments, huge ones and exploding variables are refused."""
    assert str(refusal(text))


@pytest.mark.parametrize(
    "text",
    [
        "A=$B; B=$A\nx --bf16 $A $B",
        "A=${A:-${A:-$A}}\nx --bf16 $A",
        'A=("${A[@]}")\nA+=("${A[@]}")\nx --bf16 "${A[@]}"',
        "x --bf16 $ ${} ${ } $\\ \\",
        "x --bf16 )))((( }}}{{{ ;;;; &&||",
        "fi; done; esac; x --bf16",
        "x --bf16 \ue0000\ue001",
        "\\" * 100_000 + "\nx --bf16",
        ("a\\\n" * 100_000) + "\nx --bf16",
        "x --bf16 " + "{" * 100_000,
    ],
)
def test_odd_scripts_are_read(text: str) -> None:
    """Tests that self-references, lone brackets and long rows of one character do no harm."""
    assert part(text).workload["precision"] == "bf16"


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
    assert "$EXTRA, which this file does not set; flags in it are not read" in told


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


# -- any text ----------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [*map(spelt, FORMS), "--no-bf16", "--x", "=", " ", " ", "\n", "\\\n", ";", "&&", "|", "(", ")",
     "A=", "A=(", "B+=(", "B=", "$A", "${A", "}", "${A[@]}", '"${B[@]}"', ":-", "'", '"', "`", "$(",
     "$((", "#", "<<EOF", "\nEOF\n", "if ", "then ", "fi\n", "case ", "esac\n", "for A in ", "do ",
     "done\n", "4", "0", "-1", "selective", "full", "flex", "Et|tL", "Et*3|(tt|)*29m|L", "tp4", "_",
     "  tensor_model_parallel_size ........ 4\n", "  recompute_modules ... ['moe']\n", "\t", "\0",
     "export ", "declare ", ": ", "read A\n", "unset A\n", "sh -c ", "\ue000", "é", "1,2"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=40).map("".join) | st.text(max_size=100))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Tests that no text makes reading or translating fail in another way than by InputError."""
    try:
        arguments = read_arguments(text)
        made = arguments.to_scenario_part()
    except InputError as error:
        assert str(error)
        return
    assert made.layout or arguments.form == "short"
    assert made.stated_layout() is not None


@given(
    st.dictionaries(
        st.sampled_from(["tp", "cp", "pp", "ep", "etp"]), st.integers(1, 64), min_size=1
    ),
    st.sampled_from(["flags", "underscores", "equals", "dump", "array"]),
)
def test_round_trip(degrees: dict[str, int], form: str) -> None:
    """Tests that degrees written in any form come back."""
    names = {
        "tp": "tensor_model_parallel_size",
        "cp": "context_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "ep": "expert_model_parallel_size",
        "etp": "expert_tensor_parallel_size",
    }
    pairs = [(names[key], value) for key, value in degrees.items()]
    if form == "dump":
        text = "\n".join(f"  {name} {'.' * (48 - len(name))} {value}" for name, value in pairs)
    elif form == "array":
        flags = "\n".join(f"  {spelt(name)} {value}" for name, value in pairs)
        text = f'A=(\n{flags}\n)\ntorchrun x.py "${{A[@]}}"'
    elif form == "flags":
        text = " ".join(f"{spelt(name)} {value}" for name, value in pairs)
    else:
        mark = "=" if form == "equals" else " "
        text = " \\\n".join(f"--{name}{mark}{value}" for name, value in pairs)
    layout = part(text).layout
    assert {key: layout[key] for key in degrees} == degrees
    if "etp" not in degrees:
        assert layout["etp"] == layout["tp"]

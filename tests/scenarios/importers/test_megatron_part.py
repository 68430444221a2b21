from __future__ import annotations

import pytest

from meshplan.scenarios.importers import read_arguments
from tests.scenarios.importers.arguments import part, refusal

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


# -- what was not read -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "word", "line"),
    [
        ("x --bf16 $EXTRA", "$EXTRA", 1),
        ("x --micro-batch-size 1 \\\n $(cat extra.txt)", "cat extra.txt", 2),
        ('x --bf16 --swiglu "$@"', "$@", 1),
        ('x --bf16 --unknown-flag "${EXTRA[@]}"', "EXTRA[@]", 1),
        ("x --bf16 ${MOE:+--expert-model-parallel-size 8}", "MOE:+", 1),
        ('E=""\n[ $D ] && E="--context-parallel-size 2"\nx --bf16 $E', "$E", 3),
        ('P="--context-parallel-size 2"\nif a; then P="--context-parallel-size 4"; fi\nx --bf16 $P',
         "$P", 3),
    ],
)  # fmt: skip
def test_unread_words_leave_all_else_open(text: str, word: str, line: int) -> None:
    """Tests that a word that was not read is told, and nothing is taken as Megatron's default."""
    arguments = read_arguments(text)
    told = [note for note in arguments.notes if "may stand there" in note]
    assert len(told) == 1 and word in told[0]
    assert told[0].startswith(f"line {line}: ")
    made = arguments.to_scenario_part()
    assert set(made.layout) <= {"mbs"}
    assert made.options == {} and made.training == {} and made.workload == {}
    assert any(note.startswith("left open, as") and "pp" in note for note in made.notes)


def test_values_of_other_flags_are_no_gap() -> None:
    """Tests that --data-path $DATA is told as a value: degrees are Megatron-LM's default then."""
    arguments = read_arguments("torchrun $RUN pretrain_gpt.py --data-path $DATA --bf16")
    assert arguments.gaps == ()
    assert any("$DATA on line 1" in note for note in arguments.notes)
    assert arguments.to_scenario_part().layout["pp"] == 1


@pytest.mark.parametrize(
    "text",
    [
        'O="--bf16"\nif a; then\nO+=" --context-parallel-size 2"\nfi\nx $O',
        'O="--bf16"\nif a; then\nO="$O --context-parallel-size 2"\nfi\nx $O',
        'if a; then\n\nO="--context-parallel-size 2"\nfi\nx --bf16 $O',
    ],
)
def test_flags_that_a_condition_adds_are_told(text: str) -> None:
    """Tests that a string that grows under a condition is taken as given, with the note."""
    arguments = read_arguments(text)
    assert arguments.to_scenario_part().layout["cp"] == 2
    said = "line 3: --context-parallel-size stands under a condition; taken as given"
    assert said in arguments.notes


@pytest.mark.parametrize(
    ("flag", "near", "key"),
    [
        ("--expert-parallel-size", "--expert-model-parallel-size", "ep"),
        ("--expert-model-parallel", "--expert-model-parallel-size", "ep"),
        ("--pipeline-parallel-size", "--pipeline-model-parallel-size", "pp"),
        ("--pipeline-model-parallel-siz", "--pipeline-model-parallel-size", "pp"),
        ("--ep", "--expert-model-parallel-size", "ep"),
    ],
)
def test_near_misses_are_told_and_open(flag: str, near: str, key: str) -> None:
    """Tests that a flag that Megatron-LM would refuse names its likely one, which stays open."""
    arguments = read_arguments(f"x --bf16 {flag} 2")
    assert [one.near for one in arguments.unknown] == [near]
    layout = arguments.to_scenario_part().layout
    assert key not in layout and layout["cp"] == 1
    assert refusal(f"x {flag} 2").advice == f"write {near} in its place."

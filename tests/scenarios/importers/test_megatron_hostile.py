from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshplan.scenarios import InputError
from meshplan.scenarios.importers import read_arguments
from meshplan.scenarios.importers.megatron_flags import FORMS, spelt
from tests.scenarios.importers.arguments import part, refusal

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
        "x --bf16" + " a" * 100_001,
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
        "if " * 90_000 + "x --bf16",
        "A=1 " * 90_000 + "x --bf16",
        "x" + " --bf16" * 90_000,
    ],
)
def test_odd_scripts_are_read(text: str) -> None:
    """Tests that self-references, lone brackets and long rows of one character do no harm."""
    arguments = read_arguments(text)
    assert arguments.get("bf16") is True
    # An 8-bit format may stand in a word that was not read: then the precision stays open.
    told = arguments.to_scenario_part().workload.get("precision")
    assert told == (None if arguments.gaps else "bf16")


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
    # A command that was not wholly read may leave every degree open.
    assert made.layout or arguments.form == "short" or arguments.gaps
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

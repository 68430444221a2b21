from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from meshplan.scenarios import loads, resolve_model
from tests.meshplan.results import ROOT, SMALL, small_file
from tests.scenarios.importers.configs import GLM_5, KIMI_K2

DSV3_128K = str(ROOT / "scenarios" / "seed" / "dsv3-h100-128k.yaml")
LAUNCH = """\
#!/bin/bash
EP=${EP:-4}
ARGS=(
    --tensor-model-parallel-size 2
    --expert-model-parallel-size $EP
    --expert-tensor-parallel-size 1
    --micro-batch-size 1 --global-batch-size 32 --seq-length 4096
    --num-experts 8 --moe-token-dispatcher-type alltoall --bf16
    --sequence-parallel --use-distributed-optimizer --wandb-project x
)
torchrun pretrain_gpt.py "${ARGS[@]}"
"""


def _run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, arguments, input=stdin)


def _launch(folder: Path, text: str = LAUNCH) -> str:
    path = folder / "launch.sh"
    path.write_text(text, "utf-8")
    return str(path)


def test_import_args_prints_a_scenario_part(tmp_path: Path) -> None:
    """Tests that standard output is YAML that completes a scenario, and findings go elsewhere."""
    run = _run("import", "args", _launch(tmp_path))
    assert run.exit_code == 0, run.stderr
    part = yaml.safe_load(run.stdout)
    assert part["layout"] == {"tp": 2, "cp": 1, "pp": 1, "ep": 4, "etp": 1, "vpp": 1, "mbs": 1}
    assert part["workload"] == {"seq_len": 4096, "global_batch_size": 32, "precision": "bf16"}
    assert "CP, PP not given: Megatron-LM takes 1" in run.stderr
    assert "1 flag is not read: --wandb-project (line 9)" in run.stderr
    body = run.stdout + SMALL[: SMALL.index("workload:")]
    assert loads(body).layout.ep is not None


def test_import_args_from_standard_input_and_words() -> None:
    """Tests ``-`` for standard input, and a short string in place of a file."""
    run = _run("import", "args", "-", stdin=LAUNCH)
    assert run.exit_code == 0 and "ep: 4" in run.stdout
    run = _run("import", "args", "tp1_pp2_cp1_vp24_ep2")
    assert yaml.safe_load(run.stdout) == {"layout": {"tp": 1, "cp": 1, "pp": 2, "ep": 2, "vpp": 24}}


def test_import_args_as_json(tmp_path: Path) -> None:
    """Tests that JSON has settings with their lines, unknown flags and notes."""
    run = _run("import", "args", _launch(tmp_path), "--json")
    data = json.loads(run.stdout)
    assert data["form"] == "script"
    assert {"name": "global_batch_size", "value": 32, "line": 7} in data["settings"]
    assert data["unknown"] == [{"flag": "--wandb-project", "line": 9, "near": None}]
    assert data["notes"]


def test_output_file_appears_whole(tmp_path: Path) -> None:
    """Tests ``-o``: the file holds the part; bad input leaves the old file as it is."""
    target = tmp_path / "part.yaml"
    run = _run("import", "args", _launch(tmp_path), "-o", str(target))
    assert run.exit_code == 0 and run.stdout == ""
    before = target.read_text("utf-8")
    assert yaml.safe_load(before)["layout"]["tp"] == 2
    run = _run("import", "args", _launch(tmp_path, "x --seq-length $(a)"), "-o", str(target))
    assert run.exit_code == 2
    assert target.read_text("utf-8") == before
    run = _run("import", "args", _launch(tmp_path), "-o", str(tmp_path / "no" / "part.yaml"))
    assert run.exit_code == 2 and "--output is" in run.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x --seq-length $(nproc)", "launch.sh:1: --seq-length is '$(nproc)', which would have"),
        ("x --bf16 'open", "launch.sh:1: a quote (') does not end"),
        ("x --seq-length 1\ny --seq-length 2", "launch.sh:2: --seq-length is 2 here, but 1 on l"),
        ("hello", "there are no Megatron arguments"),
        ("x --bf16 \0", "NUL"),
    ],
)
def test_bad_arguments_end_with_two(text: str, words: str, tmp_path: Path) -> None:
    """Tests exit code 2 with file, line and value, and no traceback."""
    run = _run("import", "args", _launch(tmp_path, text))
    assert run.exit_code == 2
    assert words in run.stderr and "Maybe" in run.stderr


def test_json_goes_to_a_file_beside_the_part_or_in_its_place(tmp_path: Path) -> None:
    """Tests ``--json PATH``, ``--json -`` and ``--json`` alone, each with and without ``-o``."""
    script, part, found = _launch(tmp_path), tmp_path / "part.yaml", tmp_path / "found.json"
    plain = _run("import", "args", script)
    run = _run("import", "args", script, "--json", str(found))
    assert run.stdout == plain.stdout and run.exit_code == 0
    data = json.loads(found.read_text("utf-8"))
    assert data["layout"]["tp"] == 2 and data["form"] == "script"
    for words in (("--json", "-"), ("--json",), ("--json", "-", "-o", str(part))):
        assert json.loads(_run("import", "args", script, *words).stdout) == data
    assert part.read_text("utf-8") == plain.stdout


def test_findings_show_no_control_characters(tmp_path: Path) -> None:
    """Tests that an escape sequence in a flag of the file does not reach the terminal."""
    run = _run("import", "args", _launch(tmp_path, "x --bf16 --a\x1b[31mb 1"))
    assert run.exit_code == 0
    assert "\x1b" not in run.output and "--a\\x1b[31mb" in run.stderr


def test_check_takes_a_launch_script(tmp_path: Path) -> None:
    """Tests ``check --args``: the script's degrees and options are judged, exit code 0."""
    run = _run("check", small_file(tmp_path), "--args", _launch(tmp_path))
    assert run.exit_code == 0, run.output
    assert "tp 2 × cp 1 × dp 4 × pp 1 = 8 GPUs" in run.stdout
    assert "etp 1 × ep 4 × edp 2 × pp 1 = 8 GPUs" in run.stdout
    assert "gradient_dtype fp32, moment_dtype fp32" in run.stderr  # the command line's defaults


def test_check_of_a_script_finds_the_expert_grid(tmp_path: Path) -> None:
    """Tests the most common surprise: without its flag ETP is TP, and 2*8*1 GPUs are not 8."""
    text = LAUNCH.replace("    --expert-tensor-parallel-size 1\n", "").replace("EP:-4", "EP:-8")
    run = _run("check", small_file(tmp_path), "--args", _launch(tmp_path, text))
    assert run.exit_code == 1
    assert "ETP not given: Megatron-LM takes etp = tp = 2" in run.stderr
    assert "etp 2" in run.stdout


def test_check_says_where_script_and_scenario_differ(tmp_path: Path) -> None:
    """Tests that another sequence length, batch, model figure or recipe is told."""
    text = LAUNCH.replace("4096", "8192").replace("--num-experts 8", "--num-experts 16 --fp16")
    text = text.replace("size 32", "size 64")
    file = small_file(tmp_path, "training: {moment_dtype: bf16}\n")
    run = _run("check", file, "--args", _launch(tmp_path, text))
    assert "--num-experts is 16, but the scenario's model toy-moe has experts = 8" in run.stderr
    assert "seq_len 8192, the scenario 4096" in run.stderr
    assert "global batch 64, the scenario 32; 64 taken" in run.stderr
    assert "moment_dtype fp32, the scenario bf16" in run.stderr
    assert "gbs 64" in run.stdout
    quiet = _run("check", file, "--args", _launch(tmp_path, text), "--quiet")
    assert quiet.output == ""


def test_layout_and_args_exclude_each_other(tmp_path: Path) -> None:
    """Tests exit code 2 where two layouts are given."""
    run = _run(
        "check", small_file(tmp_path), "--layout", "tp=1", "--args", _launch(tmp_path)
    )  # fmt: skip
    assert run.exit_code == 2 and "use one of them" in run.stderr


def test_import_model_prints_a_card(tmp_path: Path) -> None:
    """Tests that the printed ``model:`` is a card: Kimi-K2 has 1,026.4 B parameters."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(KIMI_K2), "utf-8")
    run = _run("import", "model", str(path), "--name", "kimi")
    assert run.exit_code == 0, run.stderr
    assert "kimi: 1026.41 B parameters" in run.stderr
    card = resolve_model(loads(SMALL.replace("model: toy-moe\n", run.stdout)))
    assert (card.name, card.experts, card.attention) == ("kimi", 384, "mla")
    data = json.loads(_run("import", "model", str(path), "--json").stdout)
    assert (data["family"], data["parameters_b"]) == ("deepseek_v3", 1026.408)


def test_import_model_says_what_a_card_cannot_hold(tmp_path: Path) -> None:
    """Tests that sparse attention is told on import, and refused as a scenario's model."""
    (tmp_path / "config.json").write_text(json.dumps(GLM_5), "utf-8")
    run = _run("import", "model", str(tmp_path / "config.json"))
    assert run.exit_code == 0
    assert "not held by a card: DeepSeek sparse attention" in run.stderr
    scenario = SMALL.replace("toy-moe", "{huggingface: config.json}")
    (tmp_path / "case.yaml").write_text(scenario, "utf-8")
    run = _run("check", str(tmp_path / "case.yaml"))
    assert run.exit_code == 2 and "case.yaml:3: model.huggingface" in run.stderr


def test_unknown_model_ends_with_two(tmp_path: Path) -> None:
    """Tests exit code 2 for an architecture that is not known, with those that are."""
    (tmp_path / "config.json").write_text('{"model_type": "rwkv"}', "utf-8")
    run = _run("import", "model", str(tmp_path / "config.json"))
    assert run.exit_code == 2
    assert "model_type is 'rwkv'" in run.stderr and "deepseek_v3" in run.stderr
    assert _run("import", "model", str(tmp_path / "none.json")).exit_code == 2


def test_mission_layout_from_a_script(tmp_path: Path) -> None:
    """Tests the published layout of DeepSeek-V3 at 128K on 256 H100s, from a launch script."""
    text = (
        "TP=1; PP=8; CP=32\n"
        "x --tensor-model-parallel-size $TP --pipeline-model-parallel-size ${PP} \\\n"
        " --context-parallel-size $CP --expert-model-parallel-size ${EP:-32} \\\n"
        " --pipeline-model-parallel-layout 'Et*3|(tt|)*29m|L' --micro-batch-size 1 \\\n"
        " --num-experts 256 --moe-token-dispatcher-type flex --recompute-granularity selective \\\n"
        " --recompute-modules mla_up_proj layernorm moe mlp --optimizer-cpu-offload \\\n"
        " --bf16 --fp8-format e4m3 --fp8-recipe blockwise --global-batch-size 256"
        " --use-distributed-optimizer --hidden-dropout 0"
    )
    run = _run("check", DSV3_128K, "--args", _launch(tmp_path, text))
    # Gradients in fp32, the command line's default, take the headroom of rank 0.
    assert "(tight: test it before you trust it)" in run.stdout
    assert "GiB over, backward" in run.stdout
    text += " --use-precision-aware-optimizer --grad-reduce-in-bf16"
    text += " --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"
    run = _run("check", DSV3_128K, "--args", _launch(tmp_path, text))
    assert run.exit_code == 0, run.output
    assert "tp 1 × cp 32 × dp 1 × pp 8 = 256 GPUs, vpp 4" in run.stdout

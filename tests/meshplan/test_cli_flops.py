"""``meshplan flops``: figures, forms of a model, JSON, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from meshplan.scenarios import InputError, load, load_card
from meshplan.solver.report.flops import FlopsReport, flops
from tests.meshplan.results import ROOT, small_file

SEED = str(ROOT / "scenarios" / "seed" / "dsv3-h100-128k.yaml")
#: Llama 3.1 8B, as its config.json has it.
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
    "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "vocab_size": 128256, "tie_word_embeddings": False,
    "_name_or_path": "meta-llama/Llama-3.1-8B",
}  # fmt: skip


def _flops(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(application, ["flops", *arguments], input=stdin)


def _data(*arguments: str, stdin: str | None = None) -> dict[str, Any]:
    run = _flops(*arguments, "--json", "-", stdin=stdin)
    assert run.exit_code == 0, run.output
    data: dict[str, Any] = json.loads(run.stdout)
    return data


def _row(text: str, label: str) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(label))
    return line[len(label) :].split()


# -- the report --------------------------------------------------------------------------------


def test_lengths_stand_side_by_side() -> None:
    """Tests DeepSeek-V3 at 4K and 128K: 260.0 and 1227.4 GFLOP, the core 12 % and 81 % of it."""
    run = _flops("deepseek-v3", "--seq", "4096", "--seq", "131072")
    assert run.exit_code == 0, run.output
    head = run.output.splitlines()[0]
    assert head == "deepseek-v3: 671.03 B parameters, 37.55 B active, MTP layers 11.61 B more"
    assert _row(run.output, "tokens in a sequence") == ["4,096", "131,072"]
    assert _row(run.output, "attention core") == ["31.21", "12.0%", "998.58", "81.4%"]
    assert _row(run.output, "all ") == ["259.99", "1,227.37"]
    # Without MTP it is 249.8.
    assert _row(run.output, "of it for MTP")[0] == "10.18"
    # 259.99 G * 4096 tokens.
    assert _row(run.output, "FLOP per sequence")[:2] == ["1.065", "P"]
    # A seventh product of six is a sixth of the core: 12.0 % / 6.
    assert _row(run.output, "flash backward")[1] == "+2.0%"
    # A third of all but the logits: (100 - 4.3) / 3.
    assert _row(run.output, "full recompute")[1] == "+31.9%"
    assert "linear attention" not in run.output, "parts that the model lacks are left out"
    assert "before Bridge 26.06" not in run.output, "counted alike"


def test_gpt_oss_is_counted_both_ways() -> None:
    """Tests that the count of releases before 26.06 stands below: 27.16 for 32.63, 16.8 % less."""
    run = _flops("gpt-oss-120b", "--seq", "4096")
    assert _row(run.output, "all ") == ["32.63"]
    assert _row(run.output, "before Bridge 26.06") == ["27.16", "-16.8%"]


def test_many_lengths_take_several_tables() -> None:
    """Tests that nine lengths, the longest of all among them, keep within 100 columns."""
    lengths = [4096 << power for power in range(8)] + [16_777_216]
    arguments = [part for one in lengths for part in ("--seq", str(one))]
    text = _flops("llama-3.1-405b", *arguments).output
    assert max(map(len, text.splitlines())) <= 100
    for one in lengths:
        assert f"{one:,}" in text
    assert text.count("tokens in a sequence") == 3, "four in a table"


# -- JSON --------------------------------------------------------------------------------------


def test_json_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    """Tests that a file gets the JSON while the terminal gets the report."""
    target = tmp_path / "out.json"
    run = _flops("toy-moe", "--seq", "64", "--json", str(target))
    assert run.exit_code == 0 and "attention core" in run.output
    data = json.loads(target.read_text("utf-8"))
    assert set(data) == {"meshplan_result", "name", "status", "parameters", "flops", "notes"}
    assert (data["meshplan_result"], data["name"], data["status"]) == (1, "toy-moe", "ok")
    assert set(data["parameters"]) == {"total", "active", "mtp"}
    assert set(data["flops"][0]) == {
        "seq_len", "per_token", "per_sequence", "mtp_per_token", "parts", "shares",
        "otherwise_counted", "not_counted",
    }  # fmt: skip
    # Six layers, half of 64 tokens, 1024 wide, scores and values, six FLOPs each.
    assert data["flops"][0]["parts"]["attention_core"] == 6 * 6 * 2 * 1024 * 32
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    first = data["flops"][0]
    for part in (data, data["parameters"], *[p for p in first.values() if isinstance(p, dict)]):
        assert not [key for key in part if key not in page]


def test_parts_add_up() -> None:
    """Tests a hybrid model: parts to the total, shares to 1, the sequence to its tokens."""
    for one in _data("nemotron-3-super-120b-a12b", "--seq", "8192", "--seq", "1")["flops"]:
        # Eight parts are rounded to whole FLOPs.
        assert sum(one["parts"].values()) == pytest.approx(one["per_token"], abs=4)
        assert sum(one["shares"].values()) == pytest.approx(1, abs=1e-5)
        assert one["per_sequence"] == pytest.approx(one["per_token"] * one["seq_len"], rel=1e-9)
        assert one["parts"]["linear_attention"] > 0 and one["mtp_per_token"] > 0


# -- forms of a model --------------------------------------------------------------------------


def test_scenario_has_a_length_of_its_own() -> None:
    """Tests a scenario of 131072 tokens: its length unless one is given, its card either way."""
    data = _data(SEED)
    assert data["name"] == "deepseek-v3"
    assert [one["seq_len"] for one in data["flops"]] == [131072]
    assert [one["seq_len"] for one in _data(SEED, "--seq", "4096")["flops"]] == [4096]


def test_changed_card_of_a_scenario(tmp_path: Path) -> None:
    """Tests that figures which a scenario changes count: DeepSeek-V3 without MTP has 249.8."""
    file = small_file(tmp_path)
    text = Path(file).read_text("utf-8")
    Path(file).write_text(
        text.replace("model: toy-moe", "model: {card: deepseek-v3, mtp_layers: 0}"), "utf-8"
    )
    data = _data(file)
    assert data["flops"][0]["per_token"] / 1e9 == pytest.approx(249.81, abs=0.01)
    assert data["flops"][0]["mtp_per_token"] == data["parameters"]["mtp"] == 0


def test_config_json(tmp_path: Path) -> None:
    """Tests a Hugging Face file and standard input: the same 51.47 GFLOP as of the card."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG), "utf-8")
    data = _data(str(file), "--seq", "8192")
    card = _data("llama-3.1-8b", "--seq", "8192")
    assert data["flops"] == card["flops"]
    assert data["flops"][0]["per_token"] / 1e9 == pytest.approx(51.47, abs=0.005)
    assert any("vocab_divisor is 128" in note for note in data["notes"]) and not card["notes"]
    assert _data("-", "--seq", "8192", stdin=json.dumps(CONFIG))["flops"] == card["flops"]
    assert "Assumed" in _flops(str(file), "--seq", "8192").output


def test_python_function_takes_what_the_command_takes() -> None:
    """Tests names, cards and scenarios, one length or several, each length once."""
    report = flops("toy-dense", [64, 128, 64])
    assert isinstance(report, FlopsReport)
    assert (report.seq_lens, report.status) == ((64, 128), "ok")
    assert report == flops(load_card("toy-dense"), (64, 128))
    assert flops(load(SEED)).seq_lens == (131072,)
    assert flops(Path(SEED), 4096).seq_lens == (4096,)
    assert str(report) == _flops("toy-dense", "--seq", "64", "--seq", "128").output
    assert "attention core" in report._repr_html_()


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message", "advice"),
    [
        (("deepsek-v3", "--seq", "1"), "MODEL is 'deepsek-v3', which is neither a model card",
         "Maybe you mean deepseek-v3"),
        (("deepseek-ai/DeepSeek-V3", "--seq", "1"), "neither a model card nor a file",
         "Maybe you mean deepseek-v3"),
        (("toy-moe",), "the model toy-moe has no sequence length", "Maybe add --seq 4096"),
        (("toy-moe", "--seq", "0"), "the sequence length is 0, but must be an integer from 1",
         "for example 4096"),
        (("toy-moe", "--seq", "-8"), "the sequence length is -8", "for example 4096"),
        (("toy-moe", "--seq", "16777217"), "the sequence length is 16777217", "for example 4096"),
        (("toy-moe", "--seq", "9" * 400), "the sequence length is a huge integer", "4096"),
        (("toy-moe", "--seq", "4k"), "'4k' is not a valid integer", "--help"),
        (("absent.yaml", "--seq", "1"), "the file 'absent.yaml' does not exist", "Maybe check"),
        (("absent.json", "--seq", "1"), "the file 'absent.json' does not exist", "Maybe check"),
        (("", "--seq", "1"), "neither a model card nor a file", "Maybe choose one of"),
        (("toy-moe\0", "--seq", "1"), "neither a model card nor a file", "Maybe you mean toy-moe"),
        (("x" * 5000, "--seq", "1"), "neither a model card nor a file", "Maybe choose one of"),
        (("toy-moe", "--seq", "1", "--json", "/no/such/folder/a.json"), "--json is", "Maybe give"),
    ],
)  # fmt: skip
def test_bad_input(arguments: tuple[str, ...], message: str, advice: str) -> None:
    """Tests exit code 2, one message with the value, and advice; no report and no traceback."""
    run = _flops(*arguments)
    assert run.exit_code == 2
    assert message in run.stderr and advice in run.stderr
    assert run.stdout == "" and "Traceback" not in run.stderr


def test_near_file_names(tmp_path: Path) -> None:
    """Tests that a file of nearly the name is suggested."""
    small_file(tmp_path)
    run = _flops(str(tmp_path / "smal.yaml"))
    assert run.exit_code == 2 and "small.yaml" in run.stderr


def test_fault_in_a_scenario_names_its_line(tmp_path: Path) -> None:
    """Tests that a scenario's own faults keep file and line, with the nearest card."""
    file = small_file(tmp_path)
    text = Path(file).read_text("utf-8")
    Path(file).write_text(text.replace("toy-moe", "toy-mo"), "utf-8")
    run = _flops(file)
    assert run.exit_code == 2
    assert f"{file}:3: model: model 'toy-mo'" in run.stderr and "toy-moe" in run.stderr


def test_model_that_a_card_holds_in_part_is_refused(tmp_path: Path) -> None:
    """Tests sparse attention: its FLOPs would be wrong, so there are none."""
    sparse = {
        "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32",
        "hidden_size": 7168, "intermediate_size": 18432, "num_attention_heads": 128,
        "num_key_value_heads": 128, "num_hidden_layers": 61, "vocab_size": 129280,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 1,
        "first_k_dense_replace": 3, "n_group": 8, "topk_group": 4, "moe_layer_freq": 1,
        "num_nextn_predict_layers": 1, "index_n_heads": 64, "index_head_dim": 128,
        "index_topk": 2048, "tie_word_embeddings": False,
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(sparse), "utf-8")
    run = _flops(str(file), "--seq", "4096")
    assert run.exit_code == 2 and "only in part: DeepSeek sparse attention" in run.stderr


@pytest.mark.parametrize(
    ("model", "lengths"), [(7, 4096), ("toy-moe", True), ("toy-moe", [4096.0]), ("toy-moe", "64")]
)
def test_python_function_refuses_what_is_no_model_or_length(model: Any, lengths: Any) -> None:
    """Tests that wrong types are bad input, in words."""
    with pytest.raises(InputError, match=r"must be"):
        flops(model, lengths)

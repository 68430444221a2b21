"""Measured runs as scenarios: what each column means, what is left out, and the sums."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks import memory_words as words
from benchmarks.memory_accuracy import FILES, judge_runs, main
from benchmarks.memory_checks import refused
from benchmarks.memory_models import DATA, is_moe, model_of
from benchmarks.memory_report import Reading, Row, confusion, counted, summary
from benchmarks.memory_rows import Run, read_runs
from benchmarks.memory_scenario import Draft, predict
from benchmarks.memory_words import Unusable
from meshplan.constraints.resolve import resolve
from meshplan.scenarios import from_mapping
from meshplan.scenarios.cards import card_names
from meshplan.scenarios.errors import InputError


@cache
def shipped() -> dict[str, Run]:
    """All rows of the shipped files, by name."""
    return {run.id: run for file in FILES for run in read_runs(file)}


def scenario(name: str) -> dict[str, Any]:
    """The scenario of a shipped row."""
    return Draft(shipped()[name]).scenario()


def flat(data: dict[str, Any]) -> dict[str, Any]:
    """``layout.tp`` and so on, with the value of each key."""
    return {
        f"{section}.{key}": value
        for section, part in data.items()
        if isinstance(part, dict)
        for key, value in part.items()
    }


#: Rows and what must stand in their scenarios.
MAPPED: dict[str, dict[str, Any]] = {
    # Ring or all-to-all is in the attention column; without a batch, 4*pp*vpp micro-batches.
    "M017": {"layout.tp": 2, "layout.cp": 4, "layout.cp_comm": "a2a", "layout.dp": 1,
             "layout.ga": 4, "model.layers": 12, "workload.seq_len": 32768,
             "training.cross_entropy": "te", "training.gradient_dtype": "fp32"},
    # 8 GPUs, two stages; a padded capacity factor of 1 means balanced experts.
    "M012": {"layout.dp": 4, "layout.ep": 4, "layout.etp": 1, "layout.ga": 8, "model.layers": 4,
             "model.dense_layers": 1, "training.load_imbalance": 1.0,
             "options.dispatcher": "alltoall", "cluster.preset": "b200-hgx"},
    # V is the padded vocabulary; 512 sequences = 4 * 8 ranks * 16; flex is HybridEP on a rack.
    "M035": {"model.vocab": 258560, "model.vocab_divisor": 1, "model.mtp_layers": 1,
             "options.pipeline_layout": "Et*7|t*7mL", "options.dispatcher": "hybridep",
             "layout.ga": 16, "training.cross_entropy": "native"},
    # Learnt from the notes and from the test that has this name.
    "M041": {"training.hidden_dropout": 0.1, "training.gradient_accumulation_fusion": False,
             "layout.vpp": 8, "layout.ga": 4, "training.cross_entropy": "unfused"},
    "M044": {"training.sequence_parallel": False, "layout.tp": 4, "layout.ga": 2},
    "M049": {"options.pipeline_layout": "Et*3|(tt|)*6tmL", "model.mtp_layers": 1,
             "training.attention_backend": "unfused",
             "training.overlap_expert_communication": True,
             "options.recompute": ["moe_act", "layernorm", "mla_up_proj", "mlp"]},
    "M069": {"model.layers": 14, "model.dense_layers": 3, "model.mtp_layers": 1,
             "options.pipeline_layout": "Ett|(tt|)*6mL", "layout.ga": 16},
    # A recipe of Megatron-Bridge: its cross entropy is Transformer Engine's; flex is DeepEP here.
    "M078": {"training.moment_dtype": "bf16", "training.gradient_dtype": "bf16",
             "training.precision_aware_optimizer": True, "training.cross_entropy": "te",
             "options.recompute": ["moe_act"], "options.dispatcher": "deepep"},
    # Between iterations no length is needed.
    "M102": {"options.optimizer_offload": 0.25, "training.precision_aware_optimizer": False,
             "training.moment_dtype": "fp32", "workload.seq_len": 4096},
    "M175": {"options.activation_offload": ["core_attn"], "workload.precision": "mxfp8",
             "options.cuda_graphs": ["attn", "moe_router", "moe_preprocess"],
             "training.fp8_parameters": "auto", "layout.ga": 64},
    # 3840 sequences = 8 ranks * 480.
    "M246": {"workload.precision": "fp8-block", "training.fp8_parameters": False,
             "options.optimizer_offload": 1.0, "layout.ga": 480, "model.mtp_layers": 1},
    # No preset for H20: another Hopper GPU stands in.
    "M289": {"cluster.preset": "h100-hgx", "training.fp8_parameters": True,
             "training.moment_dtype": "bf16", "training.gradient_dtype": "fp32"},
    "M297": {"training.load_imbalance": 2.0, "options.recompute": "full",
             "training.recompute_method": "uniform", "training.recompute_num_layers": 1},
    # Mixtral without folding: Megatron-LM takes etp = tp where ep > 1, too.
    "M228": {"layout.etp": 8, "layout.tp": 8, "options.recompute": "auto"},
    # etp = tp here, too: 4*8 divides the 128 GPUs.
    "M218": {"layout.etp": 4, "layout.dp": 32},
    # Releases from 26.06 on have Transformer Engine 2.16.
    "vc-nemotron_3_5_lightning_30b_a3b-pretrain_performance-h100": {
        "framework.transformer_engine": "2.16", "options.activation_offload": ["expert_fc1"],
        "options.cuda_graphs": ["attn", "mamba"], "options.recompute": ["moe_act", "layernorm"],
        "options.dispatcher": "hybridep", "training.moment_dtype": "bf16",
        "training.gradient_dtype": "bf16", "layout.ga": 32},
}  # fmt: skip


@pytest.mark.parametrize("name", MAPPED)
def test_rows_become_scenarios(name: str) -> None:
    """Tests what the columns of well-known rows turn into, and that the scenario is one."""
    written = scenario(name)
    found = flat(written)
    assert {key: found.get(key) for key in MAPPED[name]} == MAPPED[name]
    assert resolve(from_mapping(written)).gpus == shipped()[name].num_gpus


def test_defaults_follow_the_source() -> None:
    """Tests that an open setting is Megatron-LM's or the recipes', and is said to be."""
    run = shipped()["M228"]
    ours = flat(Draft(run).scenario())
    assert ours["training.gradient_dtype"] == "fp32"
    assert ours["training.cross_entropy"] == "unfused"
    assert ours["options.dispatcher"] == "alltoall"
    recipe = Draft(shipped()["M166"])
    found = flat(recipe.scenario())
    assert found["training.gradient_dtype"] == "bf16"
    assert found["training.moment_dtype"] == "bf16"  # DeepSeek-V3's recipes; others have fp32
    assert found["training.cross_entropy"] == "te"
    assert "moment_dtype bf16 (not stated)" in recipe.flags


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("M097", "LoRA"),
        ("M112", "FSDP: megatron-fsdp"),
        ("M133", "vision tower"),
        ("M152", "tp not stated"),
        ("M161", "ep not stated"),
        ("M176", "full iteration"),
        ("M189", "GPU VR200 unknown"),
        ("M191", "NCCL EP"),
        ("M211", "analytic"),
        ("M213", "without its modules"),
        ("M215", "number of GPUs not stated"),
        ("M253", "optimizer offload"),
        ("M273", "seq_len not stated"),
        ("M299", "unpacked data"),
        ("M306", "DPO"),
        ("M308", "does not run on A100"),
        ("M331", "model llama3-8b-like unknown"),
    ],
)
def test_rows_left_out_say_why(name: str, reason: str) -> None:
    """Tests that what a row leaves open, or what is not modelled, is a reason and no guess."""
    with pytest.raises(Unusable, match=reason):
        predict(shipped()[name])


@pytest.mark.parametrize(
    ("text", "figures"),
    [
        ("deepseek-v3", {"card": "deepseek-v3"}),
        ("deepseek_v3", {"card": "deepseek-v3"}),
        ("deepseek-v3 no MTP", {"card": "deepseek-v3", "mtp_layers": 0}),
        ("deepseek-v3 + MTP", {"card": "deepseek-v3", "mtp_layers": 1}),
        ("qwen3_30b_a3b SFT 32K", {"card": "qwen3-30b-a3b"}),
        ("SimuMax-llama3-70b-12L", {"card": "llama-3.1-70b", "layers": 12}),
        ("llama3.1-405b", {"card": "llama-3.1-405b"}),
        ("golden-mixtral-8x7b V=256000", {"vocab": 256000, "vocab_divisor": 1}),
        ("golden-moe-mla-16L", {"hidden": 1024, "layers": 16, "mtp_layers": 1}),
        ("golden-moe-mla-16L h=512", {"hidden": 512, "layers": 16, "mtp_layers": 0}),
        ("nemotron-3.5-lightning (hybrid MoE, 2 MTP)", {"mtp_layers": 2}),
        ("mixtral-8x2b-4L", {"layers": 4, "moe_ffn": 5440}),
    ],
)
def test_model_names(text: str, figures: dict[str, Any]) -> None:
    """Tests spellings, and what a name may say besides the model."""
    reference = model_of(text).reference
    assert {key: reference.get(key) for key in figures} == figures


def test_models_of_the_data_file_are_cards() -> None:
    """Tests that each entry is a model, has a source, and hides no shipped card."""
    entries = yaml.safe_load(DATA.read_text("utf-8"))["models"]
    for entry in entries:
        assert entry.get("card", "") in ("", *card_names())
        assert "source" in entry or set(entry) <= {"names", "card"}
        for name in entry["names"]:
            if name in card_names():
                assert entry["card"] == name
            written = scenario("M001") | {"model": model_of(name).reference}
            assert resolve(from_mapping(written)).model.is_moe == is_moe(model_of(name))


# -- sums ----------------------------------------------------------------------------------------


def row(observed: str, verdict: str, **parts: Any) -> Row:
    """A predicted row."""
    return Row("f.csv", 2, "X", "s", "m", "8 H100", "", observed, verdict=verdict, **parts)


def test_confusion_counts_pairs_of_verdicts() -> None:
    """Tests that rows without a verdict, left out, or seen before are not counted."""
    rows = [
        row("fits", "fits"),
        row("fits", "tight"),
        row("fits", "fits"),
        row("oom", "overfull"),
        row("oom", "fits"),
        row("", "fits"),
        row("fits", ""),
        row("fits", "fits", counts=False),
    ]
    assert confusion(rows) == {
        ("fits", "fits"): 2, ("fits", "tight"): 1, ("oom", "overfull"): 1, ("oom", "fits"): 1,
    }  # fmt: skip


def test_summary_of_errors() -> None:
    """Tests the sums of -2, 1, 4 and 9 percent: mean 3, median of the sizes 3, one within 3 %..."""
    errors = [Reading("X", words.ALLOCATED, 100, 100 + e).error for e in (-2, 1, 4, 9)]
    sums = summary(errors)
    assert sums["n"] == 4
    assert sums["mean"] == pytest.approx(3)
    assert sums["median"] == pytest.approx(3)
    assert sums["max"] == pytest.approx(9)
    assert [sums[f"within_{limit}"] for limit in (3, 5, 6)] == [0.5, 0.75, 0.75]
    assert summary([]) == {"n": 0}


def test_a_figure_counts_once() -> None:
    """Tests that a measurement in two files counts in the row that states more settings."""
    names = ("M115", "vc-nemotron_3_5_lightning_30b_a3b-pretrain_performance-h100")
    rows = judge_runs([shipped()[name] for name in names])
    assert [one.counts for one in rows] == [False, True]
    assert len(counted(rows, words.ALLOCATED)) == 1
    # Equal figures under different recompute are two measurements.
    names = ("ar-llama3_70b-sft-h100-32-mlp", "ar-llama3_70b-sft-h100-32-mlp_core_attn")
    assert all(one.counts for one in judge_runs([shipped()[name] for name in names]))


def test_every_row_is_predicted_or_left_out() -> None:
    """Tests that no shipped row is passed over in silence."""
    rows = judge_runs(list(shipped().values()))
    assert len(rows) == 259
    assert all(bool(one.reason) != bool(one.verdict) for one in rows)
    assert sum(not one.reason for one in rows) >= 150
    assert all(len(one.reason) > 6 for one in rows if one.reason)


# -- files ---------------------------------------------------------------------------------------


def rewritten(source: Path, target: Path, changes: dict[str, str]) -> Path:
    """The header and first row of a shipped file, with these cells changed."""
    with open(source, encoding="utf-8", newline="") as stream:
        first = next(csv.DictReader(stream))
    with open(target, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(first))
        writer.writeheader()
        writer.writerow(first | changes)
    return target


def test_other_files_are_judged_the_same_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests a file on the command line, and both files of results."""
    given = rewritten(FILES[0], tmp_path / "other.csv", {"row_id": "H1", "mbs": "2"})
    json_file, csv_file = tmp_path / "out.json", tmp_path / "out.csv"
    assert main([str(given), "--json", str(json_file), "--csv", str(csv_file)]) == 0
    out = capsys.readouterr().out
    assert "H1" in out
    assert "1 rows, 1 predicted, 0 left out" in out
    data = json.loads(json_file.read_text("utf-8"))
    assert data["rows"][0]["readings"][0]["kind"] == "allocated"
    assert data["summary"]["allocated"]["n"] == 1
    assert csv_file.read_text("utf-8").splitlines()[1].startswith("H1,")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (0, {"tp": "two"}, r"bad.csv:2: tp is 'two', but must be a whole number"),
        (0, {"num_gpus": "-8"}, r"bad.csv:2: num_gpus is '-8'"),
        (0, {"measured_peak_gib": "1e5"}, r"bad.csv:2: measured_peak_gib is '1e5'"),
        (0, {"measured_peak_gib": "nan"}, r"bad.csv:2: measured_peak_gib is 'nan'"),
        (0, {"verdict": "perhaps"}, r"bad.csv:2: verdict is 'perhaps', but must be fits, oom"),
        (0, {"distributed_optimizer": "x"}, r"bad.csv:2: distributed_optimizer is 'x'"),
        (1, {"mem_unit": "MB"}, r"bad.csv:2: mem_unit is 'MB', but must be GB or GiB"),
        (1, {"mem_gb": "much"}, r"bad.csv:2: mem_gb is 'much'"),
        (1, {"mem_gb": "9" * 30}, r"bad.csv:2: mem_gb is '9+', but must be .* up to 1,000,000"),
        (0, {"num_gpus": "99999999"}, r"num_gpus is '99999999', but must be .* to 1,048,576"),
        (0, {"row_id": "\x1b[31mX"}, r"bad.csv:2: row_id has the control character '\\x1b'"),
    ],
)
def test_cells_that_cannot_be_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: int,
    changes: dict[str, str],
    message: str,
) -> None:
    """Tests that a bad cell is one error with file, line and value, and exit code 2."""
    given = rewritten(FILES[file], tmp_path / "bad.csv", changes)
    with pytest.raises(InputError, match=message):
        read_runs(given)
    assert main([str(given)]) == 2
    assert "bad.csv:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        # The row is 8 GPUs, tp 1 cp 1 pp 2, dp 4, mbs 1, of a dense model.
        ({"dp": "2"}, r"dp is 2, but 8 GPUs / (tp 1 * cp 1 * pp 2) = 4"),
        ({"num_gpus": "9", "dp": ""}, "tp 1 * cp 1 * pp 2 = 2 does not divide 9 GPUs"),
        ({"gbs": "10"}, "gbs 10 is not a multiple of dp 4 * mbs 1"),
        ({"ep": "4"}, "ep is 4, but SimuMax-llama3-70b-12L has no experts"),
        ({"ep": "8", "model": "mixtral-8x7b"}, "etp 1 * ep 8 * pp 2 = 16 does not divide 8 GPUs"),
        ({"stage_rank": "rank 2"}, "the figure is of rank 2, but pp is 2"),
        ({"pp": "1", "dp": "8", "vpp": "3", "stage_rank": ""}, "vpp is 3 with pp 1"),
        ({"measured_reserved_gib": "50"}, "50 GiB reserved is less than 66.55"),
        ({"dispatcher": "banana"}, "dispatcher 'banana' is not known"),
        ({"precision": "banana"}, "precision 'banana' is not known"),
        ({"cuda_graphs": "banana"}, "graphs 'banana' is not known"),
        ({"optimizer_dtypes": "banana"}, "optimizer 'banana' is not known"),
        ({"recompute_granularity": "banana"}, "recompute 'banana' is not known"),
        ({"ce_impl": "banana"}, "cross entropy 'banana' is not known"),
        ({"measured_kind": "banana"}, "kind of figure 'banana' is not known"),
        ({"optimizer_offload": "25"}, "offload is 25"),
    ],
)
def test_rows_that_cannot_be_true_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, str], message: str
) -> None:
    """Tests file, line, value and advice; the other rows are judged, and nothing is written."""
    given = rewritten(FILES[0], tmp_path / "bad.csv", changes)
    results = tmp_path / "out.json"
    results.write_text("{}", "utf-8")
    assert main([str(given), str(FILES[0]), "--json", str(results)]) == 2
    told = capsys.readouterr()
    assert f"bad.csv:2: row M001: {message}" in told.err
    assert "\nMaybe " in told.err
    assert "223 rows, " in told.out
    assert results.read_text("utf-8") == "{}"


def test_no_shipped_row_is_refused() -> None:
    """Tests that all rows of the shipped files are consistent and in known words."""
    sound, faults = refused(list(shipped().values()))
    assert (len(sound), faults) == (len(shipped()), [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "bad.csv: the file is empty"),
        ("a,b\n1,2\n", "has neither measured_peak_gib nor mem_gb"),
        ("row_id,measured_peak_gib\nX,1\n", "the header lacks source, model"),
        ("row_id,mem_gb,mem_gb\nX,1,2\n", "the column 'mem_gb' stands twice"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    """Tests headers of neither form, or without columns that are needed."""
    path = tmp_path / "bad.csv"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=message):
        read_runs(path)


def test_rows_of_the_wrong_length(tmp_path: Path) -> None:
    """Tests that a row with a cell too many is refused with its line."""
    path = tmp_path / "bad.csv"
    path.write_text(FILES[0].read_text("utf-8") + "X,1,2\n", "utf-8")
    with pytest.raises(InputError, match=r"bad.csv:225: the line has 3 cells, but the header"):
        read_runs(path)


def test_missing_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that a file that is not there is exit code 2 and no traceback."""
    assert main([str(tmp_path / "absent.csv")]) == 2
    assert "does not exist" in capsys.readouterr().err

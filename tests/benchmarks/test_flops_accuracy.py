"""FLOPs of published runs: how rows are counted and read, what is left out, and the aim."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from benchmarks.flops_accuracy import (
    COLUMNS,
    DATA,
    SHARE,
    Comparison,
    compare,
    exception_reason,
    main,
    read_rows,
    report,
    summary,
)
from meshplan.scenarios.errors import InputError


@cache
def shipped() -> dict[str, Comparison]:
    """All rows of the shipped file, compared, by name."""
    return {one.id: one for one in map(compare, read_rows(DATA))}


def written(path: Path, **changes: str) -> Path:
    """A file of one row, Llama-3-8B at 8192 tokens, with these cells changed."""
    cells = dict.fromkeys(COLUMNS, "") | {
        "row_id": "X", "release": "26.06", "phase": "pretrain", "model": "llama3_8b",
        "num_gpus": "8", "gbs": "128", "seq_len": "8192", "tokens_per_s_per_gpu": "37556",
        "model_tflops_per_gpu": "1933", "approx": "0", "data": "mock",
    } | changes  # fmt: skip
    with open(path, "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(cells))
        writer.writeheader()
        writer.writerow(cells)
    return path


def compared(path: Path, **changes: str) -> Comparison:
    """That row, compared."""
    return compare(read_rows(written(path / "runs.csv", **changes))[0])


# -- the aim -------------------------------------------------------------------------------------


def test_published_rows_meet_the_aim() -> None:
    """Tests 98 % within 2 % on the shipped file, and that most agree to the printed digits."""
    sums = summary(list(shipped().values()))
    assert sums["rows"] == 274 and sums["comparable"] >= 190
    assert sums["share"] >= SHARE
    assert sums["within_0.1"] / sums["comparable"] > 0.6


def test_every_row_is_compared_or_left_out() -> None:
    """Tests that a row without a reason has both figures, and a reason is in words."""
    for one in shipped().values():
        assert one.reason == "" or len(one.reason) > 10
        assert one.reason or one.error is not None, one.id


def test_what_is_off_has_a_reason() -> None:
    """Tests the exceptions: each is explained by its flags or its rounding."""
    flags = {row.text("row_id"): row.text("flags") for row in read_rows(DATA)}
    off = [one for one in shipped().values() if not one.reason and not one.is_within]
    assert len(off) <= 4
    for one in off:
        assert exception_reason(one, flags[one.id]) != "not explained", one.id


# -- how rows are counted --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ours", "remark"),
    [
        ("ps-26.04-gpt_oss_120b-h100-bf16-64", 27.16, "counted as before 26.06"),
        ("ps-26.06-gpt_oss_120b-gb300-mxfp8-64", 32.63, ""),
        # 6 * 2880 * (201088 - 32000) = 2.92 GFLOP of logits less.
        ("vc-gpt_oss_120b-pretrain-h100", 29.71, ""),
        ("ps-25.11-deepseek_v3-gb300-bf16-256", 249.81, ""),  # without MTP
        ("ps-26.06-deepseek_v3-gb300-mxfp8-256", 259.99, ""),  # with it
        # Two thirds of 433.1 - 16.1 (the core of 80 layers at 4096 tokens).
        ("ps-26.06-llama3_70b-h100-fp8_cs-8-lora", 278.01, "LoRA on SQuAD: 2/3 of the linears"),
        ("ps-26.06-llama3_70b-gb200-mxfp8-32-sft", 433.12, ""),
        ("vc-nemotron_3_super_120b_a12b-pretrain_performance-gb200", 84.73,
         "tokens/s corrected by the row's flag"),
        ("eo-qwen3_30b_a3b-h100-16-overlap_on", 23.01, "tokens/s from the step time"),
    ],
)  # fmt: skip
def test_rows_are_counted_as_they_say(name: str, ours: float, remark: str) -> None:
    """Tests one row of each kind: our figure, how it was counted, and that it agrees to 1 %."""
    one = shipped()[name]
    assert one.ours_gflop == pytest.approx(ours, abs=0.01)
    assert (one.remark, one.reason) == (remark, "")
    assert one.error is not None and abs(one.error) < 1


def test_releases_up_to_25_04_counted_the_whole_matrix(tmp_path: Path) -> None:
    """Tests Llama-3-8B: 51.47 GFLOP, and 6.44 (the other half of the core) more in 25.04."""
    today = compared(tmp_path)
    older = compared(tmp_path, release="25.04")
    assert today.ours_gflop == pytest.approx(51.47, abs=0.01)
    assert older.ours_gflop == pytest.approx(51.47 + 6 * 32 * 32 * 128 * 8192 / 1e9, abs=0.01)
    assert (today.remark, older.remark) == ("", "whole matrix")


def test_step_time_stands_in_for_tokens(tmp_path: Path) -> None:
    """Tests 128 * 8192 tokens on 8 GPUs in 3.49 s: 37556 tokens/s, as the row says."""
    step_ms = 128 * 8192 / 8 / 37556 * 1e3
    stated = compared(tmp_path)
    derived = compared(tmp_path, tokens_per_s_per_gpu="", step_time_ms=f"{step_ms:.6f}")
    assert derived.published_gflop == pytest.approx(stated.published_gflop, rel=1e-6)


def test_rounding_of_a_row(tmp_path: Path) -> None:
    """Tests the reason of a row that is off by 2.3 %, with tokens/s in steps of up to 2.2 %.

    1933 TFLOP/s are rounded by 0.5, which is 0.03 %.
    """
    one = compared(tmp_path, tokens_per_s_per_gpu="36750", tokens_rounding_pct="2.25")
    assert one.error == pytest.approx(-2.15, abs=0.01) and not one.is_within
    assert one.rounding == pytest.approx(2.25 + 50 / 1933)
    assert exception_reason(one, "") == "tokens/s and TFLOP/s are rounded by up to 2.3 %"
    off = compared(tmp_path, tokens_per_s_per_gpu="30000")
    assert exception_reason(off, "") == "not explained"
    assert exception_reason(off, "a flag") == "a flag"


# -- what is left out ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hc-deepseek_v3-h100-1024", "no tokens/s"),
        ("lc-deepseek_v3-h100-seq4096", "no tokens/s"),
        ("wan-gb200-32", "no model card"),
        ("vc-glm5_2-sft-h100", "no model card"),
        ("vc-qwen35_35b_a3b-pretrain_performance-gb200", "images"),
        ("vc-qwen3_30b_a3b-sft-h100", "packed real data"),
        ("vc-moonlight_16b_a3b-peft-h100", "packed real data"),
        ("mt-qwen3_8b-lora-h100-base", "no tokens/s"),
    ],
)
def test_rows_left_out_say_why(name: str, reason: str) -> None:
    """Tests the reason of rows that have nothing to compare, or not our count."""
    assert reason in shipped()[name].reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"approx": "1"}, "approximate"),
        ({"seq_len": ""}, "sequence length not stated"),
        ({"phase": "lora"}, "LoRA that is not counted"),
        ({"phase": "sft", "data": "real"}, "packed real data"),
        ({"model": "gpt_oss_120b", "release": ""}, "release not stated"),
        ({"model": "llama_9"}, "no model card: llama_9"),
        ({"model_tflops_per_gpu": ""}, "no tokens/s, or no TFLOP/s"),
    ],
)
def test_reasons_follow_from_the_cells(
    tmp_path: Path, changes: dict[str, str], reason: str
) -> None:
    """Tests that one cell makes a good row incomparable, whatever its error."""
    assert compared(tmp_path).reason == ""
    assert reason in compared(tmp_path, **changes).reason


# -- files and the report --------------------------------------------------------------------------


def test_other_files_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests a file on the command line, its summary and the JSON."""
    target = tmp_path / "out.json"
    assert main([str(written(tmp_path / "a.csv")), "--json", str(target), "--all"]) == 0
    out = capsys.readouterr().out
    assert "1 rows, 1 comparable, 0 left out" in out and "2 %: 1 of 1 = 100.0%" in out
    data = json.loads(target.read_text("utf-8"))
    # 1933e12 / 37556 = 51.4698e9; ours is 51.4704e9.
    assert data["rows"][0]["error"] == pytest.approx(0.001, abs=0.0005)
    assert data["summary"]["share"] == 1


def test_missed_aim_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests a file whose only row is 25 % off."""
    assert main([str(written(tmp_path / "a.csv", tokens_per_s_per_gpu="30000"))]) == 1
    out = capsys.readouterr().out
    assert "not explained" in out and "MISSED" in out


def test_report_of_nothing() -> None:
    """Tests that no rows are no error."""
    assert "0 rows, 0 comparable" in report([], {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seq_len": "4k"}, "runs.csv:2: seq_len is '4k', but must be a whole number"),
        ({"tokens_per_s_per_gpu": "-1"}, "tokens_per_s_per_gpu is '-1', but must be a positive"),
        ({"model_tflops_per_gpu": "nan"}, "model_tflops_per_gpu is 'nan'"),
        ({"model_tflops_per_gpu": "0"}, "model_tflops_per_gpu is '0'"),
        ({"mtp": "yes"}, "mtp is 'yes', but must be a whole number"),
        ({"mtp": "17"}, "mtp is '17', but must be a whole number from 0 to 16"),
    ],
)
def test_bad_cells_are_named(tmp_path: Path, changes: dict[str, str], message: str) -> None:
    """Tests that a cell that is not what its column holds is refused with file and line."""
    with pytest.raises(InputError) as caught:
        compared(tmp_path, **changes)
    assert message in str(caught.value) and "Maybe" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        (",".join(COLUMNS), "the file has a header, but no rows"),
        ("row_id,model\nX,llama3_8b\n", "the header lacks release"),
        (",".join(COLUMNS) + "\nX,1\n", "the line has 2 cells, but the header has 17 columns"),
        (",".join(COLUMNS) + '\n"X', "the line is no CSV"),
    ],
)
def test_bad_files_are_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    """Tests that a file of another kind is one message, and no traceback."""
    path = tmp_path / "a.csv"
    path.write_text(text, "utf-8")
    assert main([str(path)]) == 2
    assert message in capsys.readouterr().err
    assert main([str(tmp_path / "absent.csv")]) == 2

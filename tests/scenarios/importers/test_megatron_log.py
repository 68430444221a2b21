"""Training logs: both formats, what libraries and ranks do to them, and the steady step time."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from meshplan.scenarios.errors import InputError
from meshplan.scenarios.importers.megatron_log import read_log, read_log_file
from meshplan.scenarios.importers.run_layout import layout_words
from meshplan.scenarios.importers.steady_steps import steady_step
from tests.scenarios.importers.logs import BRIDGE, CONFIGURATION, DUMP, log_line, megatron_log


def test_megatron_lines() -> None:
    """Tests the fields of a line of Megatron-LM: iteration, ms, TFLOP/s and batch."""
    step = read_log(log_line(20, 1234.5, tflops=312.3, batch=256) + "\n").steps[0]
    assert (step.iteration, step.step_s, step.tflops, step.batch) == (20, 1.2345, 312.3, 256)
    assert (step.line, step.faulty, step.part) == (1, 0, 0)


def test_older_lines() -> None:
    """Tests lines before timestamps and throughput were logged, and with a mean after a slash."""
    old = " iteration      200/    1000 | elapsed time per iteration (ms): 430.0 | lm loss 7.4 |\n"
    assert read_log(old).steps[0].step_s == 0.43
    mean = old.replace("430.0", "430.0/512.5")
    assert read_log(mean).steps[0].step_s == 0.43


def test_bridge_prints_both_lines() -> None:
    """Tests that Bridge's lines of rank 0 are not counted where the last rank's are there."""
    log = read_log(BRIDGE)
    assert log.form == "megatron"
    assert [step.iteration for step in log.steps] == [1, 2, 3]
    times = [step.step_s for step in log.steps]
    assert times == pytest.approx([31.2345, 8.5712, 8.5689], abs=1e-9), "not 8.57"


def test_bridge_rank_zero_alone() -> None:
    """Tests that the rounded times of rank 0 serve where there is nothing else, and are told."""
    text = "Step Time : 11.65s GPU utilization: 1158.1TFLOP/s/GPU\n"
    text += "Step Time : 8.57s GPU utilization: 1574.0MODEL_TFLOP/s/GPU\n"
    log = read_log(text)
    assert log.form == "step-time"
    assert [(s.iteration, s.step_s, s.tflops) for s in log.steps] == [
        (1, 11.65, 1158.1), (2, 8.57, 1574.0),
    ]  # fmt: skip
    assert "rounded to 0.01 s" in log.notes[0]


def test_colours_prefixes_and_carriage_returns() -> None:
    """Tests escape sequences inside a number's line, rank prefixes, and Windows line ends."""
    line = log_line(7, 900.0)
    coloured = line.replace("900.0", "\x1b[1;32m900.0\x1b[0m")
    for text in (
        f"63: {line}", f"[default7]:{line}", f"\x1b[32m{coloured}\x1b[0m",
        f"2026-11-30T01:02:03Z worker-7 INFO {line}", f"{line}\r", f"50%|###|\r{line}",
    ):  # fmt: skip
        assert [step.step_s for step in read_log(text + "\n").steps] == [0.9], text


def test_ranks_on_one_line_and_across_lines() -> None:
    """Tests two records on one line, and one that another rank's line end cut in two."""
    one = log_line(1, 900.0) + "NCCL INFO ring" + log_line(2, 901.0)
    assert [step.step_s for step in read_log(one + "\n").steps] == [0.9, 0.901]
    whole = log_line(3, 902.0)
    place = whole.index("elapsed")
    torn = f"{whole[:place]}\n[rank5] warning\n{whole[place:]}\n"
    assert [(step.iteration, step.step_s) for step in read_log(torn).steps] == [(3, 0.902)]


def test_lines_of_several_ranks_count_once() -> None:
    """Tests that an iteration that two ranks log, out of order and 0.1 % apart, is one step."""
    rows = [(1, 900.0), (2, 900.0), (1, 900.9), (3, 900.0), (2, 900.4), (3, 899.9)]
    log = read_log("".join(log_line(*row) + "\n" for row in rows))
    assert [step.iteration for step in log.steps] == [1, 2, 3]
    assert log.notes == ("3 lines repeat an iteration, as several ranks print it",)


def test_restart_is_a_part_of_its_own() -> None:
    """Tests that iterations done again after a restart are new steps, with their own warm-up."""
    rows = [(number, 900.0) for number in range(1, 21)]
    again = [(number, 5000.0 if number < 14 else 910.0) for number in range(11, 31)]
    log = read_log("".join(log_line(*row) + "\n" for row in rows + again))
    assert [step.part for step in log.steps] == [0] * 20 + [1] * 20
    step = steady_step(log)
    assert step.warm_up == 10 and step.kept == 30 and step.outliers == 0
    assert "started 2 times" in log.notes[0]


def test_cut_off_number_does_not_count() -> None:
    """Tests a job that was killed while it wrote 1234.5: 12 ms are no step."""
    whole, cut = log_line(1, 1234.5), log_line(2, 1234.5)
    cut = cut[: cut.index("34.5 |")]
    assert cut.endswith(" 12")
    log = read_log(f"{whole}\n{cut}")
    assert [step.iteration for step in log.steps] == [1]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "latin-1"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    """Tests logs that PowerShell or an old library wrote: the numbers are read all the same."""
    path = tmp_path / "train.log"
    path.write_bytes((f"Größe: 5 µs\n{log_line(4, 800.0)}\n").encode(encoding))
    assert [step.step_s for step in read_log_file(path).steps] == [0.8]


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    """Tests NULs and broken UTF-8 between the lines, as NCCL and storage leave them."""
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\xc3\x28 noise\n\0\0\0\n" + log_line(4, 800.0).encode() + b"\n\x80")
    assert [step.step_s for step in read_log_file(path).steps] == [0.8]


def test_arguments_of_the_last_start(tmp_path: Path) -> None:
    """Tests that the printed arguments are read, of two starts the last, through rank prefixes."""
    second = DUMP.replace("size ...... 8", "size ...... 4")
    text = DUMP + log_line(1, 900.0) + "\n" + "".join(f"0: {x}\n" for x in second.splitlines())
    log = read_log(text + log_line(2, 900.0) + "\n")
    assert log.arguments is not None and log.arguments.form == "dump"
    assert log.arguments.get("expert_model_parallel_size") == 4
    stated = log.arguments.to_scenario_part(48).stated_layout()
    words = layout_words(stated)
    assert words.startswith("tp=2,cp=1,pp=1,ep=4,etp=1,vpp=1,mbs=1,recompute=moe_act+mlp")
    assert "dispatcher=alltoall" in words and words.endswith("gbs=512")


def test_arguments_that_contradict_name_the_line() -> None:
    """Tests the line of the log, not of the excerpt: 3 above the dump, TP on its 4th and 5th."""
    dump = DUMP.replace("size ...... 2\n", "size ...... 2\n  tensor_model_parallel_size ...... 4\n")
    with pytest.raises(InputError) as refused:
        read_log("a\nb\nc\n" + dump + log_line(1, 900.0) + "\n", "train.log")
    lines = ("a\nb\nc\n" + dump).splitlines()
    assert refused.value.line is not None
    assert "tensor_model_parallel_size ...... 4" in lines[refused.value.line - 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello\n",
        "iteration 3 of 5: 900 ms\n",
        "Step Time : s\n",
        "Step Time : 1e400s\n",
        "Step Time : 12.5e3s\n",
    ],
)
def test_no_step_time_is_refused(text: str) -> None:
    """Tests that another text is named as what it is not."""
    with pytest.raises(InputError, match="there is no step time in it") as refused:
        read_log(text, "train.log")
    assert str(refused.value).startswith("train.log: ") and "Maybe" in str(refused.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Tests a missing file, a folder, and a compressed one."""
    with pytest.raises(InputError, match="does not exist"):
        read_log_file(tmp_path / "no.log")
    with pytest.raises(InputError, match="is a folder"):
        read_log_file(tmp_path)
    path = tmp_path / "train.log.gz"
    path.write_bytes(gzip.compress(log_line(1, 900.0).encode()))
    with pytest.raises(InputError, match="compressed"):
        read_log_file(path)


# -- the steady step ---------------------------------------------------------------------------


def test_warm_up_and_interruptions_are_left_out() -> None:
    """Tests 40 steps of about 1 s, the first of 30 s and two checkpoints of 1.5 s."""
    dice = random.Random(1)
    times = [1000 * (1 + dice.gauss(0, 0.004)) for _ in range(40)]
    times[0] = 30_000.0
    times[1:4] = [2000.0, 1500.0, 1200.0]
    times[19] = times[39] = 1500.0
    step = steady_step(read_log(megatron_log(times)))
    assert step.step_s == pytest.approx(1.0, rel=0.003)
    assert (step.warm_up, step.outliers, step.kept) == (5, 2, 33)
    assert step.spread == pytest.approx(0.004, abs=0.0025)
    assert step.notes == ()


def test_every_tenth_step_logged() -> None:
    """Tests that lines are means of 10 steps: the first has the warm-up in it, and is left out.

    Megatron-LM logs the first step besides: the next line has the steps 2 to 10, warm-up, too.
    """
    rows = [(1, 30_000.0), (10, 4000.0), (20, 1000.0), (30, 1010.0), (40, 990.0)]
    for kept in (rows, rows[1:]):
        step = steady_step(read_log("".join(log_line(*row) + "\n" for row in kept)))
        assert (step.step_s, step.kept) == (1.0, 3)


@pytest.mark.parametrize(
    ("count", "skip", "kept"), [(6, None, 4), (9, None, 6), (30, None, 25), (30, 10, 20), (6, 0, 6)]
)
def test_how_many_are_skipped(count: int, skip: int | None, kept: int) -> None:
    """Tests 5 steps, a third of a short log, or as many as asked for."""
    assert steady_step(read_log(megatron_log([1000.0] * count)), skip).kept == kept


def test_only_line_is_taken_with_a_warning() -> None:
    """Tests a log of one line: it serves, and its warm-up is told; asked to skip it, we refuse."""
    log = read_log(megatron_log([1000.0]))
    step = steady_step(log)
    assert step.step_s == 1.0
    assert "has the warm-up in it" in step.notes[0]
    with pytest.raises(InputError, match="nothing is left after the first 3 steps"):
        steady_step(log, 3)


def test_batch_that_grows() -> None:
    """Tests that only steps of the last batch count, as the others are shorter."""
    lines = [log_line(n, 500.0, batch=256) for n in range(1, 21)]
    lines += [log_line(n, 1000.0, batch=512) for n in range(21, 41)]
    step = steady_step(read_log("\n".join(lines) + "\n"))
    assert (step.step_s, step.batch, step.kept) == (1.0, 512, 20)
    assert "only steps with 512 count" in step.notes[0]


def test_steps_without_an_update_do_not_count() -> None:
    """Tests that a step that the loss scale skips, which is shorter, is left out."""
    lines = [log_line(n, 1000.0) for n in range(1, 16)]
    lines[9] = log_line(10, 970.0, skipped=1)
    step = steady_step(read_log("\n".join(lines) + "\n"))
    assert (step.faulty, step.kept, step.step_s) == (1, 9, 1.0)


def test_doubtful_runs_are_told() -> None:
    """Tests a wide spread, a drift of 6 %, and too few lines."""
    dice = random.Random(2)
    wide = steady_step(
        read_log(megatron_log([1000 * (1 + dice.gauss(0, 0.06)) for _ in range(60)]))
    )
    assert any("spread by" in note for note in wide.notes)
    drift = steady_step(read_log(megatron_log([1000.0 + 3 * n for n in range(40)])))
    assert any("slower than the first: the run drifts" in note for note in drift.notes)
    few = steady_step(read_log(megatron_log([1000.0] * 4)))
    assert "only 3 lines are left to measure by" in few.notes


def test_configuration_of_bridge_is_read() -> None:
    """Tests sections, lists, null, experts under their own name, and the line of each field.

    The length of the data stands, not the 131072 that the model could have; a latent of a model
    without latents is printed, too.
    """
    log = read_log("rank 0\n" + CONFIGURATION + BRIDGE)
    assert log.arguments is None and log.configuration is not None
    read = {one.name: (one.value, one.line) for one in log.configuration.settings}
    assert read["num_experts"] == (128, 33) and read["num_layers"] == (48, 32)
    assert read["seq_length"] == (4096, 8)
    assert read["recompute_modules"][0] == ("moe_act", "mlp")
    assert read["sequence_parallel"][0] is True and "fp8" not in read
    assert read["global_batch_size"][0] == 512
    part = log.configuration.to_scenario_part(48)
    assert layout_words(part.stated_layout()).startswith("tp=2,cp=1,pp=1,ep=8,etp=1")


def test_prefixed_configuration_is_read() -> None:
    """Tests what srun --label puts before each line, and lines of another rank between them."""
    lines = [f"0: {line}" for line in CONFIGURATION.splitlines()]
    lines.insert(20, "1: model:")
    log = read_log("\n".join([*lines, BRIDGE]))
    assert log.configuration is not None
    assert log.configuration.get("num_layers") == 48
    assert read_log(BRIDGE).configuration is None

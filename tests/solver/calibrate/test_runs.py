"""The file of measured runs: what is read, and what is refused with which words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from meshplan.scenarios.calibration import default_calibration
from meshplan.scenarios.errors import InputError
from meshplan.solver.calibrate import read_runs
from meshplan.solver.judge import model_tflops_per_gpu
from tests.solver.calibrate.measured import write_scenarios

HEADER = "scenario,layout,step_s,tflops_per_gpu,tokens_per_s_per_gpu,name,weight\n"


def _file(folder: Path, text: str) -> Path:
    write_scenarios(folder)
    path = folder / "runs.csv"
    path.write_text(text, "utf-8")
    return path


def test_three_ways_to_say_how_fast(tmp_path: Path) -> None:
    """Tests that seconds, TFLOP/s and tokens/s of one run are the same step.

    512 sequences of 4096 tokens on 64 GPUs in 8 s are 4096 tokens/s for each GPU.
    """
    path = _file(tmp_path, HEADER + 'moe.yaml,"tp=1,ep=8,pp=1",8.0,,,,\n')
    run = read_runs(path)[0]
    tflops = model_tflops_per_gpu(run.problem, run.layout, 8_000_000)
    rows = f'moe.yaml,"tp=1,ep=8,pp=1",,{tflops!r},,,\nmoe.yaml,"tp=1,ep=8,pp=1",,,4096,,2.5\n'
    by_tflops, by_tokens = read_runs(_file(tmp_path, HEADER + rows))
    assert run.step_s == 8.0
    assert by_tflops.step_s == pytest.approx(8.0, rel=1e-9)
    assert by_tokens.step_s == pytest.approx(8.0, rel=1e-9)
    assert (run.weight, by_tokens.weight) == (1.0, 2.5)
    assert run.group == by_tokens.group and run.same == by_tokens.same


def test_comments_blank_lines_and_other_columns(tmp_path: Path) -> None:
    """Tests that what people add does no harm, and that lines are counted as in an editor."""
    text = (
        "# measured in May\n\nscenario,layout,step_s,cluster day\n\n# again\nmoe.yaml,,9,Monday\n"
    )
    run = read_runs(_file(tmp_path, text))[0]
    assert (run.line, run.stated, run.name) == (6, "", "moe")


@pytest.mark.parametrize("separator", [";", "\t"])
def test_other_separators(separator: str, tmp_path: Path) -> None:
    """Tests what spreadsheets write; a decimal comma is refused with the figure that is meant."""
    lines = ["scenario", "layout", "step_s"], ["moe.yaml", "tp=1,ep=8", "9.5"]
    text = "\n".join(separator.join(cells) for cells in lines)
    run = read_runs(_file(tmp_path, text))[0]
    assert (run.step_s, run.layout.tp, run.layout.ep) == (9.5, 1, 8)
    with pytest.raises(InputError, match=r"step_s is '9,5'.*\nMaybe write 9\.5, with"):
        read_runs(_file(tmp_path, text.replace("9.5", "9,5")))


def test_names_are_told_apart(tmp_path: Path) -> None:
    """Tests that two runs without a name are not one in a report."""
    rows = 'moe.yaml,"tp=1,ep=8",9,,,,\nmoe.yaml,"tp=2,ep=8",9,,,,\n'
    names = [run.name for run in read_runs(_file(tmp_path, HEADER + rows))]
    assert names == ["moe", "moe (line 3)"]


def test_calibration_of_a_scenario_does_not_matter(tmp_path: Path) -> None:
    """Tests that a scenario may name the calibration that is yet to be written."""
    path = _file(tmp_path, "scenario,step_s\nmoe.yaml,9\n")
    with open(tmp_path / "moe.yaml", "a", encoding="utf-8") as file:
        file.write("calibration: not-there-yet.yaml\n")
    assert read_runs(path)[0].problem.calibration == default_calibration()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("runs.csv: the file has neither a header nor rows", "Maybe add a line for each run")),
        ("scenario,step_s\n", ("runs.csv: the file has a header, but no rows",)),
        ("layout,step_s\n", ("runs.csv:1: the header has no column scenario",)),
        ("scenario,layout\n", ("runs.csv:1: the header has none of step_s, tflops_per_gpu",)),
        ("scenario,steps_s\n", ("there is no column 'steps_s'", "you meant step_s")),
        ("scenario,step_s,step_s\n", ("the column 'step_s' stands twice",)),
        ("scenario,layout,step_s\nmoe.yaml,tp=1,ep=8,9\n",
         ("runs.csv:2: the line has 4 cells, but the header has 3 columns", "double quotes")),
        ('scenario,layout,step_s\nmoe.yaml,"tp=1,9\n', ("runs.csv:2: the line is no CSV",)),
        (HEADER + "moe.yaml,,9,300,,,\n", ("runs.csv:2: exactly one of step_s, tflops_per",
                                           "step_s and tflops_per_gpu are")),
        (HEADER + "moe.yaml,,,,,,\n", ("none of them is filled in",)),
        (HEADER + "moe.yaml,,9 s,,,,\n", ("runs.csv:2: step_s is '9 s', but must be a positive",)),
        (HEADER + "moe.yaml,,-3,,,,\n", ("step_s is '-3', but must be a positive number",)),
        (HEADER + "moe.yaml,,nan,,,,\n", ("step_s is 'nan'",)),
        (HEADER + "moe.yaml,,9,,,,0\n", ("weight is '0', but must be a positive number",)),
        (HEADER + "moe.yaml,,9,,,,1e9\n", ("weight is 1e9, but must be from 0.001 to 1000",)),
        (HEADER + "moe.yaml,,1e-300,,,,\n", ("step_s is 1e-300, 3e+300 times faster",)),
        (HEADER + "moe.yaml,,9000,,,,\n", ("step_s is 9000", "times slower than predicted",
                                           "not milliseconds")),
        (HEADER + "moe.yaml,,0.5,,,,\n", ("step_s is 0.5: ", "than the bf16 peak of 989")),
        (HEADER + "moe.yaml,,,5000,,,\n", ("tflops_per_gpu is 5000, more than the bf16 peak of",)),
        (HEADER + ",,9,,,,\n", ("scenario is empty",)),
        (HEADER + "mo.yaml,,9,,,,\n", ("runs.csv:2: scenario is 'mo.yaml'", "does not exist",
                                       "you meant")),
        (HEADER + 'moe.yaml,"tp=1,eq=8",9,,,,\n', ("runs.csv:2:", "unknown key", "you meant ep")),
        (HEADER + 'moe.yaml,"tp=1,ep=7",9,,,,\n',
         ("runs.csv:2: layout is 'tp=1,ep=7', which is illegal: ", "7 does not divide",
          "the run had ep = ")),
    ],
)  # fmt: skip
def test_bad_rows_are_refused(text: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Tests that each refusal names file, line, column and value, and gives advice."""
    with pytest.raises(InputError) as refused:
        read_runs(_file(tmp_path, text))
    said = str(refused.value)
    assert "runs.csv" in said and "Maybe" in said
    for word in words:
        assert word in said


def test_runs_may_be_too_many(tmp_path: Path) -> None:
    """Tests that 1001 runs are refused: a fit would take hours."""
    text = "scenario,step_s\n" + "moe.yaml,9\n" * 1001
    with pytest.raises(InputError, match="more than 1000 rows"):
        read_runs(_file(tmp_path, text))


def test_groups_are_model_cluster_and_layout(tmp_path: Path) -> None:
    """Tests that another length is the same group, though not the same run, and another TP none."""
    write_scenarios(tmp_path)
    body = (tmp_path / "moe.yaml").read_text("utf-8").replace("4096", "8192")
    (tmp_path / "moe8k.yaml").write_text(body.replace("name: moe", "name: moe8k"), "utf-8")
    rows = ("moe.yaml", "tp=1"), ("moe8k.yaml", "tp=1"), ("moe.yaml", "tp=2")
    text = "scenario,layout,step_s\n" + "".join(
        f'{file},"{tp},ep=8,pp=1,mbs=1,recompute=full,dispatcher=alltoall",9\n' for file, tp in rows
    )
    short, long, wide = read_runs(_file(tmp_path, text))
    assert short.group == long.group != wide.group
    assert short.same != long.same
    assert dataclasses.replace(short, step_s=1.0).same == short.same

"""No command writes a result over a file that it reads, by whatever name the file goes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import meshplan
from benchmarks import flops_accuracy, memory_accuracy, solve_time, user_reports
from meshplan.cli.app import application
from meshplan.cli.whole_file import WholeFile, keep_apart
from meshplan.scenarios.calibration import DEFAULT_FILE
from meshplan.scenarios.cards import card_file
from meshplan.scenarios.errors import InputError
from tests.meshplan.results import ROOT, small_file
from tests.scenarios.importers.logs import DUMP, megatron_log

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024,
    "intermediate_size": 2048, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 8, "vocab_size": 32000, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one input of each kind, in which the commands run."""
    monkeypatch.chdir(tmp_path)
    small_file(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG), "utf-8")
    (tmp_path / "cal.yaml").write_bytes(DEFAULT_FILE.read_bytes())
    small_file(tmp_path, "calibration: cal.yaml\n", "calibrated.yaml")
    text = Path(small_file(tmp_path)).read_text("utf-8")
    hf = text.replace("toy-moe", "{huggingface: config.json}")
    (tmp_path / "hf.yaml").write_text(hf, "utf-8")
    (tmp_path / "train.sh").write_text("torchrun pretrain_gpt.py --bf16\n", "utf-8")
    (tmp_path / "train.log").write_text(DUMP + megatron_log([4700.0] * 20), "utf-8")
    (tmp_path / "runs.csv").write_text("scenario,layout,step_s\ncalibrated.yaml,,1\n", "utf-8")
    os.symlink("small.yaml", tmp_path / "link.yaml")
    os.link(tmp_path / "small.yaml", tmp_path / "hard.yaml")
    return tmp_path


def _stopped(*_: object, **__: object) -> None:
    raise AssertionError("the search was started")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("solve small.yaml --json small.yaml", "--json is 'small.yaml', the same file as the sce"),
        ("solve link.yaml --json ./small.yaml", "the same file as the scenario ('link.yaml')"),
        ("solve small.yaml --json link.yaml", "--json is 'link.yaml', the same"),
        ("solve small.yaml --json hard.yaml", "--json is 'hard.yaml', the same"),
        ("solve calibrated.yaml --json cal.yaml", "the same file as calibration ('cal.yaml')"),
        ("solve hf.yaml --json config.json", "the same file as model.huggingface"),
        ("check small.yaml --json small.yaml", "the same file as the scenario"),
        ("check small.yaml --args train.sh --json train.sh", "the same file as --args"),
        ("memory small.yaml --json small.yaml", "the same file as the scenario"),
        ("flops config.json --seq 4096 --json config.json", "the same file as MODEL"),
        ("flops hf.yaml --json config.json", "the same file as model.huggingface"),
        ("test . --junit hard.yaml", "--junit is 'hard.yaml', the same file as"),
        ("test calibrated.yaml --junit cal.yaml", "the same file as calibration of calibrated"),
        ("import args train.sh -o train.sh", "the same file as the file to import"),
        ("import args train.sh --json train.sh", "--json is 'train.sh', the same file as the file"),
        ("import args train.sh --json a.new -o a.new", "the same file as --output"),
        ("import runs train.log --scenario small.yaml --json train.log", "the same file as log 1"),
        ("why small.yaml --json link.yaml", "the same file as the scenario"),
        ("import model config.json -o config.json", "the same file as the file to import"),
        ("import runs train.log --scenario small.yaml -o train.log", "the same file as log 1"),
        ("import runs train.log --scenario small.yaml -o small.yaml", "as the scenario"),
        ("calibrate runs.csv --json runs.csv", "the same file as RUNS.csv"),
        ("calibrate runs.csv --base cal.yaml --out cal.yaml", "the same file as --base"),
        ("calibrate runs.csv --out calibrated.yaml", "the same file as line 2, the scenario"),
        ("calibrate runs.csv --picture new.png --json new.png", "the same file as --picture"),
    ],
)  # fmt: skip
def test_inputs_are_not_written_over(
    command: str, said: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests exit code 2 before any work, with path and advice, and that no file changes."""
    monkeypatch.setattr(meshplan, "solve", _stopped)
    before = {path.name: path.read_bytes() for path in files.iterdir()}
    run = CliRunner().invoke(application, command.split())
    assert run.exit_code == 2, run.output
    assert said in run.stderr and "Maybe give" in run.stderr
    assert {path.name: path.read_bytes() for path in files.iterdir()} == before


def test_shipped_data_is_not_written_over(files: Path) -> None:
    """Tests the model card and the calibration that ship with meshplan."""
    for path in (card_file("toy-moe"), DEFAULT_FILE):
        assert path is not None
        before = path.read_bytes()
        run = CliRunner().invoke(application, ["check", "small.yaml", "--json", str(path)])
        assert run.exit_code == 2 and "the same file as" in run.stderr
        assert path.read_bytes() == before


def test_file_behind_standard_input_is_an_input(files: Path) -> None:
    """Tests ``import model - -o FILE < FILE``."""
    before = (files / "config.json").read_bytes()
    with open(files / "config.json", "rb") as stream:
        run = subprocess.run(
            [sys.executable, "-m", "meshplan", "import", "model", "-", "-o", "config.json"],
            stdin=stream, capture_output=True, text=True, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
    assert run.returncode == 2 and "the same file as the file to import" in run.stderr
    assert (files / "config.json").read_bytes() == before


@pytest.mark.parametrize(
    ("main", "name"),
    [
        (flops_accuracy.main, "published_runs.csv"),
        (memory_accuracy.main, "memory_runs.csv"),
        (user_reports.main, "user_reports.yaml"),
        (solve_time.main, "small.yaml"),
    ],
)
def test_benchmarks_do_not_write_over_their_rows(
    main: Callable[[list[str]], int], name: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tests that a benchmark stops at once where its result would replace its data."""
    source = ROOT / "benchmarks" / "data" / name
    if source.is_file():
        (files / name).write_bytes(source.read_bytes())
    before = (files / name).read_bytes()
    assert main([name, "--json", f"./{name}"]) == 2
    said = capsys.readouterr()
    assert "--json is" in said.err and "the same file as FILE 1" in said.err and said.out == ""
    assert (files / name).read_bytes() == before


def test_benchmarks_do_not_write_over_shipped_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Tests a file of data that is read beside the rows."""
    models = ROOT / "benchmarks" / "data" / "memory_models.yaml"
    before = models.read_bytes()
    assert flops_accuracy.main(["--json", str(models)]) == 2
    assert "the same file as data/memory_models.yaml" in capsys.readouterr().err
    assert models.read_bytes() == before


def test_other_files_may_be_written_over(files: Path) -> None:
    """Tests an old result, a new file and a device; a file is replaced whole."""
    (files / "old.json").write_text("{}", "utf-8")
    for path in ("old.json", "new.json", os.devnull):
        run = CliRunner().invoke(application, ["check", "small.yaml", "-q", "--json", path])
        assert run.exit_code == 0, run.output
    assert json.loads((files / "old.json").read_text("utf-8"))["status"] == "ok"
    assert (files / "old.json").read_bytes() == (files / "new.json").read_bytes()
    assert not [path.name for path in files.iterdir() if path.name.startswith(".")]


def test_odd_names_are_never_the_same(files: Path) -> None:
    """Tests names that lead nowhere: a NUL character, a missing file, one that is far too long."""
    target = WholeFile("new.json", "--json")
    keep_apart([target, None], {"a": "\0", "b": "missing", "c": "x" * 5000, "d": None})
    with pytest.raises(InputError, match="the same file as a"):
        keep_apart([target], {"a": Path("other") / ".." / "new.json"})


@pytest.mark.parametrize(
    "command",
    ["calibrate runs.csv --out -", "calibrate runs.csv --picture -", "test small.yaml --junit -"],
)
def test_dash_is_no_file(command: str, files: Path) -> None:
    """Tests results that only go to files: a file of the name ``-`` is not made by mistake."""
    run = CliRunner().invoke(application, command.split())
    assert (
        run.exit_code == 2 and "is '-', but this result does not go to standard out" in run.stderr
    )
    assert "Maybe give the path of a file" in run.stderr
    assert not (files / "-").exists()


def test_json_replaces_nothing_but_json(files: Path) -> None:
    """Tests a slip of names: another scenario, log or table is not lost; an old result may go."""
    for name in ("hf.yaml", "train.log", "runs.csv"):
        before = (files / name).read_bytes()
        run = CliRunner().invoke(application, ["flops", "toy-moe", "--seq", "8", "--json", name])
        assert run.exit_code == 2, run.output
        assert f"--json is '{name}', a file that holds no JSON" in run.stderr
        assert (files / name).read_bytes() == before
    (files / "empty.json").touch()
    for name in ("new.json", "new.json", "empty.json", os.devnull):
        run = CliRunner().invoke(application, ["flops", "toy-moe", "--seq", "8", "--json", name])
        assert run.exit_code == 0, run.output


def test_json_does_not_replace_a_table(files: Path) -> None:
    """Tests ``import runs``: --output adds rows, and --json, which would replace them, refuses."""
    # Without the TFLOP/s of the log, which are those of a larger model.
    log = re.sub(
        r"throughput per GPU \(TFLOP/s/GPU\): [0-9.]+ \| ", "", megatron_log([4700.0] * 20)
    )
    (files / "train.log").write_text(log, "utf-8")
    table = files / "runs.csv"
    before = table.read_bytes()
    command = ["import", "runs", "train.log", "--scenario", "small.yaml", "--json"]
    run = CliRunner().invoke(application, [*command, "runs.csv"])
    assert run.exit_code == 2 and "--json is 'runs.csv', a file that holds no JSON" in run.stderr
    assert table.read_bytes() == before
    for _ in range(2):  # a result of its own may be replaced
        assert CliRunner().invoke(application, [*command, "new.json"]).exit_code == 0
    run = CliRunner().invoke(application, [*command, "--output", "runs.csv"])
    assert run.exit_code == 0 and json.loads(run.stdout)["runs"]
    assert table.read_bytes().startswith(before) and table.read_bytes() != before

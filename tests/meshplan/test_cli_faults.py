from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import meshplan
from meshplan.cli.app import application
from meshplan.cli.exit_codes import DEBUG_VARIABLE
from tests.meshplan.results import ROOT, small_file


def _fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def solve(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(meshplan, "solve", solve)


def test_our_own_faults_ask_for_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an unexpected error is one short message, exit code 70, without a traceback."""
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    _fail_with(monkeypatch, RuntimeError("a\nb"))
    run = CliRunner().invoke(application, ["solve", small_file(tmp_path)])
    assert run.exit_code == 70
    assert "RuntimeError: a b" in run.stderr and "Please report it" in run.stderr
    assert "Traceback" not in run.stderr


def test_traceback_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the environment variable lets the error through."""
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    _fail_with(monkeypatch, RuntimeError("oh"))
    run = CliRunner().invoke(application, ["solve", small_file(tmp_path)])
    assert isinstance(run.exception, RuntimeError)


def test_interrupt_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that Ctrl-C outside of a search ends with code 4 and one word."""
    _fail_with(monkeypatch, KeyboardInterrupt())
    run = CliRunner().invoke(application, ["solve", small_file(tmp_path)])
    assert (run.exit_code, run.stderr) == (4, "Stopped.\n")


@pytest.mark.parametrize("command", ["solve", "check", "test"])
def test_missing_files_are_bad_input(command: str) -> None:
    """Tests one clear message and exit code 2 for a file that does not exist."""
    run = CliRunner().invoke(application, [command, "no/such/file.yaml"])
    assert run.exit_code == 2
    assert "no/such/file.yaml" in run.stderr and "Maybe check the path" in run.stderr


@pytest.mark.parametrize(
    "text",
    ["{", "meshplan: 1", "a: &a [*a, *a]", "meshplan: 1\nmeshplan: 1", "- 1", "", "\t"],
)
def test_bad_files_are_bad_input(tmp_path: Path, text: str) -> None:
    """Tests that no text makes a traceback: exit code 2 with file and message."""
    path = tmp_path / "bad.yaml"
    path.write_text(text, "utf-8")
    run = CliRunner().invoke(application, ["check", str(path)])
    assert run.exit_code == 2
    assert run.stderr.startswith("Error: ") and "bad.yaml" in run.stderr


def test_unknown_commands_and_options_are_bad_input() -> None:
    """Tests that click's own refusals have the same exit code."""
    assert CliRunner().invoke(application, ["sovle"]).exit_code == 2
    assert CliRunner().invoke(application, ["check", "--foo"]).exit_code == 2
    assert CliRunner().invoke(application, ["check"]).exit_code == 2


def test_module_can_be_run() -> None:
    """Tests ``python -m meshplan``, its name in the help, its version and its exit code."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "meshplan", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert run("--help").stdout.startswith("Usage: meshplan [OPTIONS] COMMAND")
    assert run("--version").stdout == f"meshplan, version {meshplan.__version__}\n"
    assert run("check", "nothing.yaml").returncode == 2


def test_readers_may_go_away() -> None:
    """Tests that a closed pipe is no fault of ours: no message, no traceback."""
    run = subprocess.run(
        f"{sys.executable} -m meshplan schema | head -1",
        shell=True, cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.stdout == "{\n"
    assert run.stderr == ""


def test_closed_output_is_no_fault() -> None:
    """Tests a caller that wants exit codes alone, and closes standard output for that."""
    for command, code in (("flops toy-moe --seq 4096", 0), ("check nothing.yaml", 2)):
        run = subprocess.run(
            f"{sys.executable} -m meshplan {command} >&-",
            shell=True, cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert run.returncode == code and "fault" not in run.stderr


@pytest.mark.parametrize("arguments", [["--help"], ["check", "--help"], ["rules"], ["models"]])
def test_light_commands_import_no_solver(arguments: list[str]) -> None:
    """Tests that help and lists need neither solver nor arrays nor graphs."""
    code = (
        "import sys\nfrom meshplan.cli import main\n"
        f"try:\n    main(args={arguments!r})\nexcept SystemExit:\n    pass\n"
        "print([n for n in ('ortools', 'numpy', 'networkx', 'pandas') if n in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.stdout.splitlines()[-1] == "[]", run.stderr


@pytest.mark.parametrize(
    "command",
    [
        ("check", "{bad}"),
        ("check", "{good}", "--args", "{script}"),
        ("check", "{good}", "\x1b[31mX"),
        ("check", "{good}", "--layout", "tp=\x1b[31m2"),
        ("check", "{good}", "--set", "\x1b[31m=2"),
        ("check", "{good}", "--json", "{folder}/no/\x1b[31m"),
        ("memory", "{good}", "--rank", "\x1b[31m1"),
        ("solve", "{good}", "--time-limit", "\x1b[31m1"),
        ("flops", "\x1b[31mX", "--seq", "4096"),
        ("test", "{bad}"),
        ("import", "args", "{script}"),
        ("import", "model", "{bad}"),
        ("import", "runs", "{script}", "--scenario", "{good}"),
        ("calibrate", "{bad}"),
        ("explain", "\x1b[31mX"),
        ("\x1b[31mX",),
    ],
)
def test_no_name_or_value_reaches_the_terminal_raw(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Tests escape sequences in names of files, in what they hold, and in what is typed."""
    files = {
        "good": small_file(tmp_path),
        "bad": small_file(tmp_path, "nonsense: 1\n", "\x1b[31mbad\n.yaml"),
        "script": str(tmp_path / "\x1b[31mtrain.sh"),
        "folder": str(tmp_path),
    }
    text = "pretrain_gpt.py --bf16 --\x1b[31mx --num-layers \x1b[31m2\n"
    Path(files["script"]).write_text(text, "utf-8")
    words = [word.format(**files) for word in command]
    # With colour: click takes escape sequences out of what goes to no terminal.
    run = CliRunner().invoke(application, words, color=True)
    assert run.exit_code in (1, 2), run.exception
    said = run.output.replace("\x1b[31mERROR\x1b[0m", "")
    assert "\x1b" not in said and "x1b" in said

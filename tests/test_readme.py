from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def _marked(mark: str, language: str) -> str:
    """Text of the one fenced block of the README that stands right after the comment ``mark``."""
    pattern = rf"^<!-- {re.escape(mark)} -->\n```{language}\n(.+?)\n```$"
    readme = (ROOT / "README.md").read_text("utf-8")
    blocks: list[str] = re.findall(pattern, readme, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1, f"{len(blocks)} blocks are marked {mark!r}"
    return blocks[0]


@pytest.mark.parametrize("name", ["solve", "test"])
def test_commands_are_one_line_each(name: str) -> None:
    """Tests that ``.ci/run`` finds the two commands, which it runs as they stand there."""
    command = _marked(f"command: {name}", "bash")
    assert command.startswith("python3 -m venv .venv && "), "it works in a new checkout"
    assert "\n" not in command, "a person copies one line"


def test_solve_command_names_a_scenario() -> None:
    """Tests that the scenario file of the first command is in the repository."""
    assert (ROOT / _marked("command: solve", "bash").split()[-1]).is_file()


def test_scenario_of_the_readme_is_solved(tmp_path: Path) -> None:
    """Tests that a person who copies the example file gets a plan from it."""
    (tmp_path / "my-run.yaml").write_text(_marked("scenario: my-run.yaml", "yaml"), "utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "meshplan", "solve", str(tmp_path / "my-run.yaml")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr

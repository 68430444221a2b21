"""The option ``--html`` of the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from meshplan.cli.app import application
from meshplan.solver import extras
from tests.meshplan.results import small_file

LAYOUT = "tp=2,ep=2"


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(application, [str(one) for one in arguments])


def test_commands_write_pages(tmp_path: Path) -> None:
    """Tests exit code, report and page of each command that has the option."""
    file, page = small_file(tmp_path), tmp_path / "page.html"
    stored = tmp_path / "a.json"
    for arguments in (
        ("check", file, "--layout", LAYOUT, "--json", stored),
        ("memory", file, "--layout", LAYOUT),
        ("solve", file),
        ("why", file, "--layout", LAYOUT),
        ("diff", stored, stored),
        ("diagnose", file),
    ):
        page.unlink(missing_ok=True)
        run = _run(*arguments, "--html", page)
        assert run.exit_code == 0, run.output
        text = page.read_text("utf-8")
        assert text.startswith("<!DOCTYPE html>") and text.rstrip().endswith("</html>")
        assert "small" in re.findall("<title>(.*)</title>", text)[0]


def test_page_and_json_are_of_one_result(tmp_path: Path) -> None:
    """Tests that the JSON on the page is the file of ``--json``, printed or written."""
    file, page = small_file(tmp_path), tmp_path / "page.html"
    run = _run("check", file, "--layout", LAYOUT, "--json", "-", "--html", page)
    data = json.loads(run.stdout)
    text = page.read_text("utf-8")
    assert f"{data['memory']['peak_gib']:.1f} GiB" in text
    assert f"&#34;step_s&#34;: {data['time']['step_s']}" in text


def test_exit_codes_stay(tmp_path: Path) -> None:
    """Tests that a page of an illegal layout is written, and that the exit code is 1."""
    page = tmp_path / "page.html"
    assert _run("check", small_file(tmp_path), "--layout", "tp=3", "--html", page).exit_code == 1
    assert "Rules broken" in page.read_text("utf-8")


@pytest.mark.parametrize("module", ["altair", "vl_convert"])
def test_without_the_extra(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the message names the extra before the scenario is even read."""
    hidden = {module: None}
    monkeypatch.setattr(extras, "find_spec", lambda name: hidden.get(name, name))
    run = _run("solve", tmp_path / "none.yaml", "--html", tmp_path / "page.html")
    assert run.exit_code == 2
    assert f"an HTML report needs {module}, which is not installed" in run.stderr
    assert "pip install 'meshplan[report]'" in run.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """Tests a page over the scenario, over another file, over --json, and on standard output."""
    file = small_file(tmp_path)
    before = Path(file).read_bytes()
    run = _run("check", file, "--layout", LAYOUT, "--html", file)
    assert run.exit_code == 2 and "the same file as" in run.stderr
    (tmp_path / "notes.txt").write_text("notes", "utf-8")
    run = _run("check", file, "--layout", LAYOUT, "--html", tmp_path / "notes.txt")
    assert run.exit_code == 2 and "a file that holds no HTML" in run.stderr
    one = tmp_path / "one"
    run = _run("check", file, "--layout", LAYOUT, "--html", one, "--json", one)
    assert run.exit_code == 2 and "the same file as --json" in run.stderr and not one.exists()
    run = _run("check", file, "--layout", LAYOUT, "--html", "-")
    assert run.exit_code == 2 and "does not go to standard output" in run.stderr
    assert Path(file).read_bytes() == before


def test_a_page_can_be_written_again(tmp_path: Path) -> None:
    """Tests that an old page is replaced, and that the same result gives the same page."""
    page = tmp_path / "page.html"
    arguments = ("check", small_file(tmp_path), "--layout", LAYOUT, "-q", "--html", page)
    assert _run(*arguments).exit_code == 0
    first = page.read_bytes()
    assert _run(*arguments).exit_code == 0
    assert page.read_bytes() == first

"""Every example of README and docs, as a reader would try it: page by page, from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from meshplan.scenarios import load
from tests.docs.blocks import MARKS, PAGES, ROOT, Block, blocks
from tests.docs.inputs import fill, my_run, programs

#: Pages that have something to do.
_PAGES = [page for page in PAGES if any(blocks(page))]
#: How long something took: a proof, a case, and all cases.
_SECONDS = re.compile(r"(proved in|\.yaml +|, in) ?[0-9.]+ s\b")


@dataclass
class _Reader:
    """Somebody with a folder and a shell, who goes through one page."""

    folder: Path
    path: str
    printed: dict[str, str] = field(default_factory=dict)

    def run(self, block: Block) -> None:
        """The lines one by one, as each has its exit code; in one shell where they need it."""
        code = int(block.about.removeprefix("exit code "))
        text = re.sub(r"\\\n\s*", "", block.text)
        for line in [text] if "source " in text else text.splitlines():
            result = self.shell(line)
            assert result.returncode == code, f"{block}: {line}\n{result.stdout}{result.stderr}"
            assert "Traceback" not in result.stderr, f"{block}: {line}\n{result.stderr}"
            self.printed[line.partition(" #")[0].strip()] = result.stdout

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "PATH": self.path,
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
        }
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )

    def sample(self, block: Block) -> None:
        """What is shown is what is printed, apart from seconds and cuts (``…``)."""
        command = f"meshplan {block.about}"
        if command not in self.printed:
            result = self.shell(command)
            assert result.returncode in (0, 3), f"{block}\n{result.stderr}"
            self.printed[command] = result.stdout
        _is_part(block, self.printed[command])

    def lines_of(self, block: Block) -> None:
        _is_part(block, (self.folder / block.about).read_text("utf-8"))

    def file(self, block: Block) -> None:
        path = self.folder / block.about
        path.write_text(block.text + "\n", "utf-8")
        if "meshplan: 1" in block.text and "model:" in block.text:
            assert load(path).name == "my-run", f"{block}: the scenario of all examples"

    def more_keys(self, block: Block) -> None:
        """In place of the same keys of the example scenario, if it has them, or after them."""
        text = my_run()
        for line in block.text.splitlines():
            key = re.escape(line.partition(":")[0])
            text = re.sub(rf"^{key}:.*\n(?: .*\n)*", "", text, flags=re.MULTILINE)
        path = self.folder / "more-keys.yaml"
        path.write_text(text + block.text + "\n", "utf-8")
        assert load(path).name == "my-run", f"{block}"

    def usage(self, block: Block) -> None:
        """Options, of the line and of ``--help``, are the same."""
        program = block.text.partition(" [")[0]
        result = self.shell(f"{program} --help")
        assert result.returncode == 0, f"{block}\n{result.stderr}"
        offered = set(re.findall(r"--[a-z][a-z-]*", result.stdout)) - {"--help"}
        assert set(re.findall(r"--[a-z][a-z-]*", block.text)) == offered, f"{block}"

    def python(self, block: Block) -> None:
        result = subprocess.run(
            [sys.executable, "-c", block.text],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert result.returncode == 0, f"{block}\n{result.stderr}"
        assert result.stdout and not result.stderr, f"{block}\n{result.stderr}"
        self.printed["python"] = result.stdout

    def output(self, block: Block) -> None:
        _is_part(block, self.printed["python"])


def _words(text: str) -> str:
    """A text without frames, line breaks and seconds that no two runs share."""
    bare = re.sub(r"^│|│$|^[╭╰].*", " ", text, flags=re.MULTILINE)
    return " ".join(_SECONDS.sub(r"\1 # s", bare).split())


def _is_part(block: Block, whole: str) -> None:
    """Tests that all pieces between cuts (``…``) stand in ``whole``, in this order."""
    rest = _words(whole)
    for piece in re.split(r"^ *…$", block.text, flags=re.MULTILINE):
        if words := _words(piece):
            _, found, rest = rest.partition(words)
            assert found, f"{block}: paste the new text; not in it:\n{piece}\n{whole}"


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_examples_of_a_page(page: Path, tmp_path: Path) -> None:
    """Tests that commands end as the page says, and print what it shows."""
    fill(tmp_path, page)
    reader = _Reader(tmp_path, programs(tmp_path))
    actions = {
        "run": reader.run,
        "sample": reader.sample,
        "lines of": reader.lines_of,
        "file": reader.file,
        "more keys": reader.more_keys,
        "usage": reader.usage,
        "python": reader.python,
        "output": reader.output,
    }
    for block in blocks(page):
        if block.mark in actions:
            actions[block.mark](block)


def test_each_block_has_a_mark() -> None:
    """Tests that a new example cannot slip in without a test: what is not run says why."""
    found = [one for page in PAGES for one in blocks(page)]
    assert [f"{one}: {one.mark!r}" for one in found if one.mark not in MARKS] == []
    fences = sum(page.read_text("utf-8").count("\n```") for page in PAGES)
    assert fences == 2 * len(found), "a fence that is indented, or not closed, hides a block"
    assert [str(one) for one in found if one.mark == "not run" and len(one.about) < 8] == []


def test_most_examples_run() -> None:
    """Tests that marks which run nothing stay few: at most one block in four."""
    found = [one for page in PAGES for one in blocks(page)]
    idle = [one for one in found if one.mark in ("not run", "command")]
    assert len(found) > 60 and len(idle) * 4 <= len(found)


def test_only_known_programs() -> None:
    """Tests that the examples call nothing that the reader's machine would have to bring."""
    commands = {
        shlex.split(line, comments=True)[0]
        for page in PAGES
        for block in blocks(page)
        if block.mark == "run"
        for line in re.sub(r"\\\n\s*", "", block.text).splitlines()
    }
    assert commands <= {"meshplan", "pip", "pytest", "source", "torchrun", "sbatch", "kubectl"}

"""Fenced blocks of the documentation, each with the mark that says what a test does with it.

A mark is a comment on the line before the fence.  Without one a ``bash`` block runs and must end
well.

| mark | the test |
|---|---|
| ``<!-- run: exit code N -->`` | runs the lines, each of which ends so |
| ``<!-- sample: COMMAND -->`` | holds the text to what ``meshplan COMMAND`` prints |
| ``<!-- lines of: FILE -->`` | holds the text to that file |
| ``<!-- file: FILE -->`` | writes it for the commands that follow; loads a scenario |
| ``<!-- more keys -->`` | loads it with the example scenario before it |
| ``<!-- usage -->`` | holds the options to the program's ``--help`` |
| ``<!-- python -->`` | runs it |
| ``<!-- output -->`` | holds the text to what the Python before it printed |
| ``<!-- command: NAME -->`` | none: ``.ci/run`` runs these |
| ``<!-- not run: REASON -->`` | none |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Pages with examples: what ``docs/reference`` holds is written by the code.
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
MARKS = frozenset({"run", "sample", "lines of", "file", "more keys", "usage", "python", "output",
                   "command", "not run"})  # fmt: skip
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]+?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)\n?^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    """One fenced block.

    Attributes
    ----------
    line
        Line of the fence, from 1.
    mark, about
        What is done with it, and what stands behind the colon; an unmarked ``bash`` block has
        ``run`` and ``exit code 0``.
    """

    page: Path
    line: int
    language: str
    mark: str
    about: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text = page.read_text("utf-8")
    for match in _BLOCK.finditer(text):
        mark, _, about = (match["mark"] or "").partition(": ")
        if not mark and match["language"] == "bash":
            mark, about = "run", "exit code 0"
        line = text.count("\n", 0, match.start("text"))
        yield Block(page, line, match["language"], mark, about, match["text"])

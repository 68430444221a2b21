from __future__ import annotations

import dataclasses
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from meshplan.solver.compare.diff import diff
from meshplan.solver.compare.why import why
from meshplan.solver.memory import memory
from tests.meshplan.results import ROOT, diagnosis, infeasible, plan, report, small_file, unknown
from tests.solver.small import toy_scenario


class _Balance(HTMLParser):
    """The tags that are open at the end, and all that were opened."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def _results(folder: Path) -> list[Any]:
    file = small_file(folder)
    return [
        plan(file, layout="tp=2,ep=2,pp=2,vpp=2"),
        report(file, "tp=3"),
        infeasible(file),
        diagnosis(file),
        unknown(file),
        why(toy_scenario(32), "tp=2,ep=2"),
        diff(report(file), report(file, "tp=4,ep=2")),
        memory(toy_scenario(32), "tp=2,ep=2"),
    ]


def test_every_result_has_a_fragment(tmp_path: Path) -> None:
    """Tests whole tags, no script and nothing to load, and the answer in words."""
    for result in _results(tmp_path):
        fragment = _Balance(result._repr_html_())
        assert fragment.open == []
        assert not {"script", "img", "link", "iframe", "html"} & set(fragment.tags)
        first = str(result).splitlines()[1].strip("│ ").split(":")[0]
        assert first in fragment.words, "the first words of the report in text"


def test_bars_are_the_memory_of_the_json(tmp_path: Path) -> None:
    """Tests that each rank has its peak, and that the widths of its parts add up to it."""
    result = plan(small_file(tmp_path), layout="tp=2,ep=2,pp=2,vpp=2")
    text = result._repr_html_()
    data = result.to_json()["memory"]
    for stage in data["stages"]:
        assert f"<span>{stage['peak_gib']:.1f} GiB</span>" in text
    bar = text.split('<span class="bar">')[1].split('<span class="line"')[0]
    width = sum(float(part.split("%")[0]) for part in bar.split("width:")[1:])
    peak = data["stages"][0]["peak_gib"]
    scale = max(data["capacity_gib"], data["peak_gib"])
    assert width == pytest.approx(100 * peak / scale, abs=0.1)


def test_text_of_users_is_text(tmp_path: Path) -> None:
    """Tests that markup in a name is read, not run."""
    result = report(small_file(tmp_path))
    problem = dataclasses.replace(result.problem, name="<img src=x onerror=alert(1)>")
    fragment = _Balance(dataclasses.replace(result, problem=problem)._repr_html_())
    assert "img" not in fragment.tags and "<img src=x" in fragment.words


def test_fragments_need_no_extra(tmp_path: Path) -> None:
    """Tests that neither Altair nor vl-convert is imported for a notebook."""
    code = (
        "import sys, meshplan\n"
        "meshplan.check(sys.argv[1], 'tp=2,ep=2')._repr_html_()\n"
        "print([name for name in ('altair', 'vl_convert', 'matplotlib') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, small_file(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == "[]"

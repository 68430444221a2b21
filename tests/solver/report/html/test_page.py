from __future__ import annotations

import dataclasses
import json
import re
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from meshplan.solver.compare.diff import diff
from meshplan.solver.compare.why import why
from meshplan.solver.memory import memory
from meshplan.solver.report.html.content import Drawing, Section
from meshplan.solver.report.html.page import html_page, sections
from meshplan.solver.results import Alternative, Relaxation
from tests.meshplan.results import diagnosis, infeasible, plan, report, small_file, unknown
from tests.solver.small import toy_scenario

PIPELINE = "tp=2,ep=2,pp=2,vpp=2"


class _Page(HTMLParser):
    """What a page would load, the scripts that it runs, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [value or "" for name, value in attrs if name in ("src", "href", "data")]
        if tag == "script":
            self.scripts.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        self.words += data


def _drawings(result: Any) -> dict[str, Drawing]:
    found = sections(result, result.to_json())
    return {one.kind: one for section in found for one in section.drawings}


def _named(result: Any) -> dict[str, Section]:
    return {section.name: section for section in sections(result, result.to_json())}


def test_page_loads_nothing(tmp_path: Path) -> None:
    """Tests that all that a page refers to is in it, and that it is smaller than 2 MB."""
    text = html_page(plan(small_file(tmp_path), layout=PIPELINE))
    page = _Page(text)
    assert all(where.startswith(("#", "data:")) for where in page.loads), page.loads
    assert not re.search(r"@import|url\(", text[: text.index("</style>")])
    assert len(text.encode()) < 2_000_000


def test_text_of_users_is_text(tmp_path: Path) -> None:
    """Tests that names, descriptions and paths with markup appear as they were written."""
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    result = report(small_file(tmp_path, f"description: {json.dumps(evil)}\n"))
    page = _Page(html_page(result))
    assert "img" not in page.tags and len(page.scripts) == 3
    assert evil in page.words
    problem = dataclasses.replace(result.problem, name=evil)
    page = _Page(html_page(dataclasses.replace(result, problem=problem)))
    assert "img" not in page.tags and len(page.scripts) == 3


def test_memory_figure_is_the_memory_of_the_json(tmp_path: Path) -> None:
    """Tests that the bars of each rank add up to its peak, and that the line is the capacity."""
    result = plan(small_file(tmp_path), layout=PIPELINE)
    stages = result.to_json()["memory"]["stages"]
    drawn = _drawings(result)["memory"].rows
    for stage in stages:
        bars = [row for row in drawn if row["rank"] == stage["rank"]]
        by_part = {row["part"]: row["gib"] for row in bars}
        for part in ("weights", "gradients", "optimizer", "activations", "overhead"):
            assert by_part[part] == stage[f"{part}_gib"]
        assert bars[0]["from"] == 0
        assert [row["to"] for row in bars[:-1]] == [row["from"] for row in bars[1:]]
        assert bars[-1]["to"] == pytest.approx(stage["peak_gib"], abs=0.005)
    assert {row["capacity"] for row in drawn} == {result.to_json()["memory"]["capacity_gib"]}


def test_time_figure_is_the_breakdown_of_the_json(tmp_path: Path) -> None:
    """Tests that parts that are shown are those of the JSON, and that all add up to the step."""
    time = plan(small_file(tmp_path)).to_json()["time"]
    drawn = _drawings(plan(small_file(tmp_path)))["time"].rows
    for row in drawn:
        if row["part"] != "everything else":
            assert row["seconds"] == time["breakdown"][row["part"].replace(" ", "_")]
    assert sum(row["seconds"] for row in drawn) == pytest.approx(time["step_s"])
    assert sum(row["share"] for row in drawn) == pytest.approx(1)


def test_slots_are_those_of_the_json(tmp_path: Path) -> None:
    """Tests time and content of each slot, and that those of a rank follow each other."""
    result = plan(small_file(tmp_path), layout=PIPELINE)
    pipeline = result.to_json()["pipeline"]
    drawn = _drawings(result)["slots"].rows
    assert [row["seconds"] for row in drawn] == pipeline["slot_s"]
    assert drawn[0]["holds"].startswith("E t") and drawn[-1]["holds"].endswith("L")
    for rank in range(2):
        own = [row for row in drawn if row["rank"] == rank]
        assert own[0]["start"] == 0 and own[1]["start"] == own[0]["end"]


def test_schedule_is_that_of_the_time_model(tmp_path: Path) -> None:
    """Tests that the first pass is that of slot 0, and that each rank runs one at a time."""
    result = plan(small_file(tmp_path), layout=PIPELINE)
    slot_s = result.to_json()["pipeline"]["slot_s"]
    drawn = _drawings(result)["schedule"].rows
    assert (drawn[0]["rank"], drawn[0]["pass"], drawn[0]["micro-batch"]) == (0, "forward", "0")
    assert drawn[0]["end"] == pytest.approx(slot_s[0] / 3, abs=1e-6)
    assert {row["pass"] for row in drawn} == {"forward", "backward"}
    for rank in range(2):
        own = [row for row in drawn if row["rank"] == rank]
        assert all(a["end"] <= b["start"] + 1e-6 for a, b in pairwise(own))


def test_large_pipelines_stay_drawable(tmp_path: Path) -> None:
    """Tests 64 ranks: few enough bars and ranks for a browser, the first and last among them."""
    file = small_file(tmp_path)
    text = Path(file).read_text("utf-8").replace("gpus: 8", "gpus: 64")
    Path(file).write_text(text.replace("size: 32", "size: 4096"), "utf-8")
    drawn = _drawings(report(file, "pp=64,tp=1,ep=1"))
    rows = drawn["schedule"].rows
    assert len(rows) <= 1200
    ranks = {row["rank"] for row in rows}
    assert len(ranks) <= 17 and ranks >= {0, 63}
    assert "ranks are shown" in drawn["schedule"].label
    assert len({row["rank"] for row in drawn["memory"].rows}) == 64


def test_domains_are_those_of_the_placement(tmp_path: Path) -> None:
    """Tests stages of 12 GPUs on domains of 8: the second is shared by two pipeline ranks."""
    file = small_file(tmp_path)
    text = Path(file).read_text("utf-8").replace("gpus: 8", "gpus: 24")
    Path(file).write_text(text.replace("size: 32", "size: 24"), "utf-8")
    result = report(file, "pp=2,tp=4,ep=1,dp=3")
    drawn = _drawings(result)["placement"]
    assert [(row["stage"], row["domain"], row["start"], row["end"]) for row in drawn.rows] == [
        (0, 0, 0, 8), (0, 1, 8, 12), (1, 1, 0, 4), (1, 2, 4, 12),
    ]  # fmt: skip
    ranks = result.to_json()["placement"]["ranks"]
    assert f"{ranks['at_domain_borders']} of 1 borders" in drawn.label
    (row,) = _named(result)["placement"].tables[1].rows
    assert row[:4] == ("0–2", "8 of 8", "0", "0–1")


def test_one_slot_has_no_schedule(tmp_path: Path) -> None:
    """Tests that a plan without a pipeline has no section on one."""
    assert "pipeline" not in _named(plan(small_file(tmp_path)))


def test_lists_of_plans_are_shown(tmp_path: Path) -> None:
    """Tests front, ranking and relaxations: each plan with its figures, that of the page marked."""
    found = plan(small_file(tmp_path))
    step_s = found.cost.time.step_us / 1e6
    same = Alternative(found.layout, step_s, found.cost.peak / 1024)
    slower = Alternative(dataclasses.replace(found.layout, tp=4, dp=2), 2 * step_s, 3.0)
    relaxed = Relaxation("memory", "1 GiB more", None, "optimal", step_s / 2, 1.0, found.layout)
    result = dataclasses.replace(found, pareto=(same, slower), top=(same,), relaxations=(relaxed,))
    drawn = _drawings(result)
    assert [(row["dp"], row["shown"]) for row in drawn["pareto"].rows] == [(4, True), (2, False)]
    assert [row["relative"] for row in drawn["pareto"].rows] == pytest.approx([0, 1], abs=1e-5)
    assert [row["gain"] for row in drawn["relaxations"].rows] == [1.0]
    named = _named(result)
    assert len(named["pareto"].tables[0].rows) == 2 and "top" in named
    assert "alternatives" not in named, "the ranking says it better"


def test_every_figure_has_a_table(tmp_path: Path) -> None:
    """Tests that what a figure shows can be read as text."""
    for result in (plan(small_file(tmp_path), layout=PIPELINE), why(toy_scenario(32), "tp=2,ep=2")):
        for section in sections(result, result.to_json()):
            assert bool(section.tables) >= bool(section.drawings), section.name
            for table in section.tables:
                assert {len(row) for row in table.rows} <= {len(table.heads)}


@pytest.mark.parametrize("make", [infeasible, unknown])
def test_answers_without_a_plan(make: Any, tmp_path: Path) -> None:
    """Tests that they need no figures, and say what is known."""
    result = make(small_file(tmp_path))
    page = _Page(html_page(result))
    assert page.scripts == []
    assert ("Infeasible: proved" in page.words) or ("Unknown:" in page.words)
    if result.status == "infeasible":
        assert "heads-tp + memory-capacity" in page.words and "it is too large" in page.words


def test_diagnosis_has_cause_and_repairs(tmp_path: Path) -> None:
    """Tests that what a repair buys is drawn and listed, and that untried ones are only listed."""
    result = diagnosis(small_file(tmp_path))
    named = _named(result)
    assert {"cause", "floors", "conflicts", "repairs", "no-help", "cut-short"} <= set(named)
    (row,) = _drawings(result)["repairs"].rows
    assert row["change"] == "8 GPUs instead of 4"
    assert row["throughput"] == plan(small_file(tmp_path)).to_json()["time"]["tokens_per_s_per_gpu"]
    verified = [row[:2] for row in named["repairs"].tables[0].rows]
    assert verified == [
        ("8 GPUs instead of 4", "yes"),
        ("half the sequence", "no, the time was up"),
    ]
    assert "Nothing fits: arithmetic alone shows" in _Page(html_page(result)).words


def test_comparisons(tmp_path: Path) -> None:
    """Tests that differences by term are those of the JSON, of `why` and of `diff`."""
    held = why(toy_scenario(32), "tp=2,ep=2")
    data = held.to_json()
    rows = {row["part"]: row["difference"] for row in _drawings(held)["terms"].rows}
    assert rows["step"] == data["comparison"]["difference_s"]
    assert rows["host"] == next(
        term["difference_s"] for term in data["comparison"]["terms"] if term["name"] == "host"
    )
    assert {"differences", "terms", "flips", "memory"} <= set(_named(held))
    file = small_file(tmp_path)
    result = diff(report(file), report(file, "tp=4,ep=2"))
    assert {"differences", "terms", "flips"} <= set(_named(result))
    assert "A is" in _Page(html_page(result)).words


def test_memory_report_has_its_items(tmp_path: Path) -> None:
    """Tests that items and levers of `meshplan memory` are on the page."""
    scenario = toy_scenario(32)
    result = memory(scenario, PIPELINE)
    named = _named(result)
    parts = result.to_json()["memory"]["items"]["parts"]
    assert len(named["items"].tables[0].rows) == len(parts)
    assert len(named["levers"].tables[0].rows) == len(result.to_json()["memory"]["levers"])


def test_broken_rules_come_first(tmp_path: Path) -> None:
    """Tests that an illegal layout says so above all figures, with the nearest legal values."""
    result = report(small_file(tmp_path), "tp=3")
    assert next(iter(_named(result))) == "violations"
    assert "nearest legal: tp = 2 or 4" in _Page(html_page(result)).words

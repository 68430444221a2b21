"""Parts of a sweep: axes, grid, journal, tables and picture."""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import meshplan
from meshplan.sweeps.axes import axes_of, read_axes
from meshplan.sweeps.grid import read_grid
from meshplan.sweeps.journal import Journal
from meshplan.sweeps.picture import draw, least_gpus
from meshplan.sweeps.result import Sweep, sweep_of
from meshplan.sweeps.row import COLUMNS
from meshplan.sweeps.tables import table
from tests.meshplan.results import small_file


@pytest.mark.parametrize(
    ("over", "values"),
    [
        ("workload.seq_len=4096,8192", (4096, 8192)),
        ("workload.seq_len=4096..40000*2", (4096, 8192, 16384, 32768)),
        ("cluster.gpus=8..24+8", (8, 16, 24)),
        ("layout.pp=2..4", (2, 3, 4)),
        ("layout.cp=[1, 2],{max: 4}, null", ([1, 2], {"max": 4}, None)),
        ("framework.version='0.18','0,19'", ("0.18", "0,19")),
        ("workload.precision=bf16", ("bf16",)),
    ],
)
def test_values_of_an_axis(over: str, values: tuple[Any, ...]) -> None:
    """Tests lists, ranges that end before their last value, and YAML values with commas inside."""
    assert read_axes([over])[0].values == values


@pytest.mark.parametrize(
    ("overs", "said"),
    [
        ([], "nothing is swept"),
        (["workload.seq_len"], "is not of the form FIELD=V1,V2"),
        (["a.=1"], "is not of the form FIELD=V1,V2"),
        (["a=1,,2"], "has an empty value"),
        (["a=1,1"], "has the value 1 twice"),
        (["a=8..4"], "8..4 is no range that ends"),
        (["a=0..8*2"], "0..8*2 is no range that ends"),
        (["a=1..8*1"], "1..8*1 is no range that ends"),
        (["a=1..8+0"], "1..8+0 is no range that ends"),
        (["a=1..100000"], "has more than 10,000 values"),
        (["a=1..200", "b=1..200"], "200 * 200 = 40,000 scenarios, but 10,000 are the most"),
        (["a=1", "a=2"], "change the same field"),
        (["a.b=1", "a=2"], "change the same field"),
        (["a=[1"], "--over 'a=[1'"),
    ],
)
def test_axes_that_are_refused(overs: list[str], said: str) -> None:
    """Tests that a bad ``--over`` is named, with its value, before anything is read."""
    with pytest.raises(meshplan.InputError) as caught:
        read_axes(overs)
    assert said in str(caught.value)


def test_a_field_is_fixed_or_swept() -> None:
    """Tests that ``--set`` of a swept field, or of the section around it, is refused."""
    for fixed in ("cluster.gpus=8", "cluster={preset: h100-hgx, gpus: 8}"):
        with pytest.raises(meshplan.InputError, match="change the same field"):
            read_axes(["cluster.gpus=16"], [fixed])


def test_the_last_axis_changes_fastest(tmp_path: Path) -> None:
    """Tests the order of a grid of two axes, and that each scenario has a key of its own."""
    axes = axes_of({"workload.seq_len": [4096, 8192], "cluster.gpus": [8, 16]})
    grid = read_grid(small_file(tmp_path), (), axes)
    assert [one.values for one in grid.points] == [(4096, 8), (4096, 16), (8192, 8), (8192, 16)]
    assert len({one.key for one in grid.points}) == 4


def test_key_follows_what_decides(tmp_path: Path) -> None:
    """Tests that name, place and expectation change no key, but the calibration's content does."""
    shipped = Path(meshplan.__file__).parent / "scenarios/calibrations/default.yaml"
    axes = axes_of({"workload.seq_len": [4096]})

    def key(extra: str = "", name: str = "small.yaml") -> str:
        return read_grid(small_file(tmp_path, extra, name), (), axes).points[0].key

    (tmp_path / "mine.yaml").write_bytes(shipped.read_bytes())
    plain = key()
    assert key("description: Other.\nexpect: {status: optimal}\n", "b.yaml") == plain
    assert key("calibration: mine.yaml\n") == plain, "the same efficiencies under another name"
    (tmp_path / "mine.yaml").write_bytes(shipped.read_bytes() + b"# refitted\n")
    assert key("calibration: mine.yaml\n") != plain
    assert key("limits: {min_dp: 2}\n") != plain


def test_twins_are_refused(tmp_path: Path) -> None:
    """Tests that a field that decides no answer cannot be swept."""
    with pytest.raises(meshplan.InputError, match='name="a" and name="b" are the same'):
        read_grid(small_file(tmp_path), (), axes_of({"name": ["a", "b"]}))


# -- the journal --------------------------------------------------------------------------------


def _row(key: str, status: str = "optimal", **more: object) -> dict[str, Any]:
    return dict.fromkeys(COLUMNS) | {"status": status, "scenario": key, **more}


def _kept(path: Path, keys: str, limit_s: float | None = None) -> tuple[set[str], list[str]]:
    journal = Journal(path, limit_s)
    try:
        return set(journal.rows_of(keys)), journal.notes
    finally:
        journal.close()


def _written(path: Path, *rows: dict[str, Any], limit_s: float | None = None) -> None:
    journal = Journal(path, limit_s)
    for row in rows:
        journal.add(row)
    journal.close()


def test_journal_gives_back_what_it_got(tmp_path: Path) -> None:
    """Tests that rows survive, that others' are told, and that a second opening adds no head."""
    path = tmp_path / "a.journal"
    _written(path, _row("a", step_s=1.5), _row("b", "infeasible", conflict="memory-capacity"))
    _written(path, _row("c"))
    kept, notes = _kept(path, "acx")
    assert kept == {"a", "c"}
    assert len(notes) == 1 and "1 row is of other scenarios" in notes[0]
    assert len(path.read_text().splitlines()) == 4, "a head and three rows"


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_torn_last_line_costs_its_row_alone(tmp_path: Path, cut: int) -> None:
    """Tests a process killed while it wrote: the line before is there, the next one is whole."""
    path = tmp_path / "a.journal"
    _written(path, _row("a"), _row("b"))
    path.write_bytes(path.read_bytes()[:-cut])
    assert _kept(path, "ab") == ({"a"}, [])
    _written(path, _row("b"))
    assert _kept(path, "ab") == ({"a", "b"}, [])


def test_torn_head_is_written_again(tmp_path: Path) -> None:
    """Tests a journal whose very first write was cut short."""
    path = tmp_path / "a.journal"
    path.write_bytes(b'{"meshpl')
    _written(path, _row("a"))
    assert _kept(path, "a") == ({"a"}, [])


def test_damaged_line_is_told(tmp_path: Path) -> None:
    """Tests that a line in the middle that is no row is named, and the others are used."""
    path = tmp_path / "a.journal"
    _written(path, _row("a"), _row("b"))
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "???", lines[2]]) + "\n")
    kept, notes = _kept(path, "ab")
    assert kept == {"b"} and "line 2 cannot be read" in notes[0]


@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n", "no line end", "a\nb", '{"meshplan_sweep":2}\n', "[]\n"]
)
def test_foreign_files_stay(tmp_path: Path, content: str) -> None:
    """Tests that a file that is no journal of this format is refused and keeps its content."""
    path = tmp_path / "a.journal"
    path.write_text(content)
    with pytest.raises(meshplan.InputError, match=r"the journal .*a\.journal"):
        Journal(path)
    assert path.read_text() == content


@pytest.mark.parametrize(
    ("limit_s", "asked_s", "lasts"),
    [(1.0, 1.0, True), (2.0, 1.0, True), (1.0, 2.0, False), (1.0, None, False)],
)
def test_unproved_rows_last_as_long_as_their_limit(
    tmp_path: Path, limit_s: float, asked_s: float | None, lasts: bool
) -> None:
    """Tests that more time than a row had means another search; proved rows always last."""
    path = tmp_path / "a.journal"
    _written(path, _row("a", "feasible"), _row("b", "unknown"), _row("c"), limit_s=limit_s)
    assert _kept(path, "abc", asked_s)[0] == ({"a", "b", "c"} if lasts else {"c"})


def test_one_sweep_at_a_time(tmp_path: Path) -> None:
    """Tests that a second sweep on the same output is refused while the first one runs."""
    path = tmp_path / "a.journal"
    journal = Journal(path)
    with pytest.raises(meshplan.InputError, match="is in use by another sweep"):
        Journal(path)
    journal.close()
    Journal(path).close()


# -- tables and picture -------------------------------------------------------------------------


def _sweep(**swept: list[Any]) -> Sweep:
    """A made-up sweep of lengths and GPUs: 8 GPUs have a plan up to 8,192 tokens, 16 up to all."""
    axes = axes_of({"workload.seq_len": [4096, 8192, 16384], "cluster.gpus": [8, 16]} | swept)
    values: list[tuple[Any, ...]] = []
    rows: dict[int, Any] = {}
    for length in axes[0].values:
        for gpus in axes[1].values:
            index = len(values)
            values.append((length, gpus))
            if gpus == 8 and length > 8192:
                rows[index] = _row(
                    f"{index}", "infeasible", cluster_gpus=8, conflict="memory-capacity"
                )
                continue
            rows[index] = _row(
                f"{index}", cluster_gpus=gpus, dp=gpus // 2, step_s=length / 1e3,
                tokens_per_s_per_gpu=4e8 / length,
            )  # fmt: skip
    return sweep_of("made-up $x$", axes, values, rows)


def test_csv_and_json_say_the_same() -> None:
    """Tests that both tables have a row for each scenario in the order of the grid."""
    sweep = _sweep()
    rows = list(csv.DictReader(io.StringIO(table(sweep, "csv").decode())))
    data = json.loads(table(sweep, "json"))
    assert data["over"] == {"workload.seq_len": [4096, 8192, 16384], "cluster.gpus": [8, 16]}
    assert [row["workload.seq_len"] for row in rows] == ["4096"] * 2 + ["8192"] * 2 + ["16384"] * 2
    for text, row in zip(rows, data["rows"], strict=True):
        assert text == {name: "" if value is None else str(value) for name, value in row.items()}


def test_csv_keeps_values_that_are_no_numbers() -> None:
    """Tests that a swept list, flag or nothing can be told apart in CSV."""
    axes = axes_of({"layout.cp": [[1, 2], True, None]})
    sweep = sweep_of(
        "s", axes, [(one,) for one in axes[0].values], dict(enumerate(map(_row, "abc")))
    )
    cells = [row["layout.cp"] for row in csv.DictReader(io.StringIO(table(sweep, "csv").decode()))]
    assert cells == ["[1, 2]", "true", ""]


def test_least_gpus_and_their_proof() -> None:
    """Tests the smallest cluster with a plan, and that one that is not known leaves it open."""
    rows = [dict(row) for row in _sweep().rows if row["workload.seq_len"] == 16384]
    assert least_gpus(rows) == (16, True), "8 GPUs are proved too few"
    rows[0]["status"] = "unknown"
    assert least_gpus(rows) == (16, False)
    assert least_gpus(rows[:1]) == (None, False)


def test_picture_has_its_panels_and_repeats() -> None:
    """Tests that the SVG has the three panels, and the same bytes again."""
    svg = draw(_sweep(), "svg")
    assert draw(_sweep(), "svg") == svg
    assert ET.fromstring(svg).tag.endswith("svg")
    comments = svg.decode()
    for text in ("tokens/s per GPU", "data parallelism left (DP)", "least GPUs, of those swept"):
        assert f"<!-- {text} -->" in comments
    assert "<!-- no plan exists -->" in comments, "16,384 tokens on 8 GPUs"
    assert draw(_sweep(), "png").startswith(b"\x89PNG")


def test_picture_with_too_many_lines_is_refused() -> None:
    """Tests that 15 lines, one more than can be told apart, are refused."""
    axes = axes_of({"workload.seq_len": [4096], "cluster.gpus": range(8, 128, 8)})
    with pytest.raises(meshplan.InputError, match="would have 15 lines, but 14 are the most"):
        draw(sweep_of("s", axes, [], {}))


def test_api_solves_a_grid(tmp_path: Path) -> None:
    """Tests ``meshplan.sweep``: a plan at 4,096 tokens, and the proof that 8M tokens never fit."""
    swept = meshplan.sweep(small_file(tmp_path), {"workload.seq_len": [4096, 8388608]})
    assert [row["status"] for row in swept.rows] == ["optimal", "infeasible"]
    assert swept.proved and swept.whole
    first, second = swept.rows
    plan = meshplan.solve(meshplan.load(small_file(tmp_path))).to_json()
    assert first["step_s"] == plan["time"]["step_s"] and first["dp"] == plan["layout"]["dp"]
    # All tokens of a step over its seconds, and the share of each of the 8 GPUs.
    assert first["tokens_per_s"] == pytest.approx(32 * 4096 / first["step_s"], rel=1e-6)
    assert first["tokens_per_s_per_gpu"] == pytest.approx(first["tokens_per_s"] / 8, rel=1e-4)
    assert first["headroom_gib"] == pytest.approx(first["capacity_gib"] - first["peak_gib"])
    assert second["conflict"] == "memory-capacity" and second["step_s"] is None
    again = meshplan.sweep(
        meshplan.load(small_file(tmp_path)), {"workload.seq_len": [4096, 8388608]}
    )
    assert again.rows == swept.rows, "from a scenario as from its file"

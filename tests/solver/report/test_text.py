from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from meshplan.scenarios import from_mapping
from meshplan.solver.check import check, judge_layout
from meshplan.solver.report.diagnosis_words import result_text
from meshplan.solver.report.text import render_text
from meshplan.solver.report.words import counted, seconds, short_layout
from meshplan.solver.results import (
    Alternative,
    CheckReport,
    Conflict,
    Infeasible,
    Plan,
    Proof,
    Unknown,
)
from tests.solver.test_memory_agreement import with_host


def _report(layout: str = "tp=2,ep=4,pp=2", gpus: int = 16, **changes: Any) -> CheckReport:
    data = {
        "meshplan": 1,
        "name": "report",
        "model": "toy-moe",
        "cluster": {"preset": "h100-hgx", "gpus": gpus},
        "workload": {"seq_len": 4096, "global_batch_size": 32},
    }
    return check(from_mapping(data | changes), layout)


def _plan(**changes: Any) -> Plan:
    report = _report()
    assert report.cost is not None
    step_s = report.cost.time.step_us / 1e6
    plan = Plan(
        report.problem,
        "optimal",
        report.layout,
        report.cost,
        Proof(objective=step_s, bound=step_s, gap=0.0, wall_s=3.21, cells=1234, programs=2),
        binding=("tp = 2: the heads",),
    )
    return dataclasses.replace(plan, **changes)


def _flat(text: str) -> str:
    """The words of a report without frame and line ends."""
    return " ".join(text.replace("│", " ").split())


def test_check_says_what_it_found() -> None:
    """Tests the first lines of a report on a legal layout, word for word."""
    text = render_text(_report(), width=90)
    for line in (
        "OK: this layout is legal and fits.",
        "model       Toy MoE for tests, 4,096 tokens, bf16",
        "cluster     16 × H100 SXM, 2 NVLink domains of 8",
        "attention   tp 2 × cp 1 × dp 4 × pp 2 = 16 GPUs",
        "experts     etp 1 × ep 4 × edp 2 × pp 2 = 16 GPUs",
        "batch       mbs 1 × dp 4 × ga 8 = gbs 32",
        "pipeline    Et*3|t*3L",
        "± 10% (estimate)",
        "Memory by pipeline rank (│ = 72.8 GiB to use)",
        "Time of a step",
        "Assumed",
        " - ga = 8: gbs / (mbs*dp) = 32/(1*4)",
    ):
        assert line in text


def test_violations_come_before_figures() -> None:
    """Tests that a person sees first what is illegal, and the nearest legal values."""
    text = render_text(_report("tp=3"))
    assert "Illegal: this layout breaks " in text
    assert "nearest legal: tp = 2 or 4" in text
    assert text.index("Rules broken") < text.index("Assumed")


def test_illegal_layouts_are_not_said_to_fit() -> None:
    """Tests that memory and time of a layout with ga = 7, which gives no gbs, are conditional."""
    text = render_text(_report("tp=2,ep=4,pp=2,ga=7"))
    assert "Illegal" in text
    assert re.search(r"GiB on rank \d \(would fit\)", text)
    assert "(fits)" not in text
    assert "± 10% (as if it were legal)" in text


def test_illegal_meshes_get_no_advice() -> None:
    """Tests that 2 * 2 * 1 ranks on 16 GPUs are not advised on dp = 1; on 4 GPUs they are."""
    report = _report("tp=2,ep=2,pp=2,dp=1")
    assert "world-dense-divisible" in [one.rule for one in report.violations]
    assert report.cost is not None and report.advisories == ()
    assert "dp-floor" in render_text(_report("tp=2,ep=2,pp=2,dp=1", gpus=4))


def test_overfull_says_by_how_much() -> None:
    """Tests that the verdict has the excess, and the bar goes past the capacity."""
    report = _report("ep=8", model="deepseek-v3")
    assert report.status == "overfull"
    text = render_text(report)
    both = r"legal, but its peak memory is [0-9.]+ GiB too much, and it needs [0-9.,]+ of "
    assert re.search(both, _flat(text)), "the optimizer's state fills the hosts besides"
    assert " over" in text
    bar = next(line for line in text.splitlines() if line.startswith("  rank 0"))
    assert bar.index("│") < bar.rindex("-"), "memory stands to the right of the capacity line"


def test_hosts_alone_can_be_overfull() -> None:
    """Tests that GPUs with room are not called overfull where only the hosts are."""
    report = _report("tp=2,ep=4,pp=2,offload=100")
    assert report.status == "ok"
    small = judge_layout(with_host(report.problem, 1), report.layout)
    text = _flat(render_text(small))
    assert re.search(r"legal, but it needs [0-9.,]+ of 0\.0 GiB of host memory a GPU", text)
    assert re.search(r"memory [0-9.]+ of 72\.8 GiB on rank \d \(fits\)", text)
    assert re.search(r"host memory [0-9.]+ of 0\.0 GiB a GPU \([^)]*\): overfull", text)


def test_plans_in_a_line_say_what_they_rest_on() -> None:
    """Tests that a plan names state on the hosts, and says if it may not be the fastest."""
    result = {
        "status": "feasible", "tokens_per_s_per_gpu": 2006.4, "peak_gib": 53.9,
        "capacity_gib": 72.8, "optimizer_offload": 1.0,
        "recompute": {"granularity": "full", "modules": []},
        "layout": dict.fromkeys(("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs"), 1)
        | {"ga": 8},
    }  # fmt: skip
    text = "2,006 tokens/s per GPU, dp 1, 53.9 of 72.8 GiB: ga=8, recompute full"
    on_hosts = f"{text}, optimizer 100% on the host"
    assert result_text(result) == f"{on_hosts} (a faster one is not ruled out)"
    assert result_text(result | {"status": "optimal"}) == on_hosts
    assert result_text(result | {"status": "optimal", "optimizer_offload": 0.0}) == text


def test_proved_plans_say_so() -> None:
    """Tests the words for a closed bound, with and without the tolerance for more DP."""
    assert "Optimal: proved in 3.21 s, over 1,234 combinations." in render_text(_plan())
    assert "No layout is faster in this cost model." in render_text(_plan())
    step_s = _plan().cost.time.step_us / 1e6
    proof = Proof(step_s / 1.015, step_s / 1.015, 0.0, 3.21)
    text = _flat(render_text(_plan(proof=proof), width=200))
    assert "The fastest layout takes 1.5% less time" in text  # 1 - 1/1.015 = 1.48 %
    assert "within dp_tolerance = 10.0%" in text


def test_one_gap_has_one_figure() -> None:
    """Tests that verdict and list give the same percentage: 1 - 1/1.018 = 1.77 %."""
    plan = _plan()
    fastest_s = plan.cost.time.step_us / 1e6 / 1.018
    other = Alternative(plan.layout, fastest_s, 9.0, "fastest")
    proof = Proof(fastest_s, fastest_s, 0.0, 3.21)
    text = _flat(render_text(_plan(proof=proof, alternatives=(other,)), width=200))
    assert "takes 1.8% less time" in text and "(-1.8%)" in text


def test_unproved_plans_say_what_is_left() -> None:
    """Tests that a plan that a limit cut short is never called optimal."""
    proof = Proof(objective=2.0, bound=1.9, gap=0.05, wall_s=10.0)
    text = _flat(render_text(_plan(status="feasible", proof=proof), width=200))
    assert "Feasible, not proved optimal" in text
    assert "No step can take less than 1.90 s: at most 5.0% to gain." in text
    assert "Optimal" not in text


def test_no_plan_says_so() -> None:
    """Tests the words of an answer without any plan."""
    text = _flat(render_text(Unknown(_report().problem, 1.5, 10.0), width=200))
    assert "Unknown: a limit stopped the search after 10.0 s" in text
    assert "No step can take less than 1.50 s." in text


def test_interrupted_searches_say_so() -> None:
    """Tests that a person who pressed Ctrl-C is not told of a limit."""
    unknown = Unknown(_report().problem, 1.5, 10.0, stopped_by="interrupt")
    text = _flat(render_text(unknown, width=200))
    assert "Unknown: you stopped the search after 10.0 s, before any plan was found." in text
    feasible = _plan(status="feasible", stopped_by="interrupt")
    text = _flat(render_text(feasible, width=200))
    assert "the best plan when you stopped the search after 3.21 s." in text


def test_time_without_calibration_says_so() -> None:
    """Tests that no band is shown for gated delta net."""
    text = _flat(render_text(_report("ep=16", model="qwen3-next-80b-a3b"), width=110))
    assert "s (estimate, not calibrated for gated delta net: do not trust it)" in text
    assert "±" not in text


def test_conflicts_are_told_in_plain_words() -> None:
    """Tests that an infeasible scenario shows rules, pins and the text of the conflict."""
    conflict = Conflict(
        ("world-dense-divisible",), ("layout.cp = 64",), "cp*pp = 64*8 = 512 GPUs, not 256", True
    )
    text = render_text(Infeasible(_report().problem, (conflict,), 0.04))
    assert "Infeasible: proved in 40.0 ms that no layout obeys all rules, pins and limits." in text
    assert "world-dense-divisible + layout.cp = 64" in text
    assert "cp*pp = 64*8 = 512 GPUs, not 256" in text


def test_alternatives_are_compared_with_the_plan() -> None:
    """Tests that another layout shows its degrees, its time against the plan's, and its note."""
    plan = _plan()
    other = Alternative(plan.layout, plan.cost.time.step_us / 1e6 * 1.25, 12.3, "fewer hops")
    text = _flat(render_text(_plan(alternatives=(other,)), width=200))
    assert "tp=2 pp=2 dp=4 ep=4 edp=2 ga=8: " in text
    assert "(+25.0%), 12.3 GiB" in text
    assert "fewer hops" in text
    twice = dataclasses.replace(plan.layout, gbs=2 * plan.layout.gbs)
    other = Alternative(twice, plan.cost.time.step_us / 1e6 * 1.5, 12.3)
    text = _flat(render_text(_plan(alternatives=(other,)), width=200))
    assert "(-25.0% a sequence, gbs 64)" in text
    assert "What is binding - tp = 2: the heads" in text


@pytest.mark.parametrize("width", [60, 80, 100, 140])
def test_lines_keep_within_the_width(width: int) -> None:
    """Tests that no line is wider than asked for, or than 110 columns."""
    for report in (_report(), _report("tp=3"), _report("pp=6,vpp=1", gpus=48)):
        lines = render_text(report, width=width).splitlines()
        assert max(map(len, lines)) <= min(width, 110)


@pytest.mark.parametrize(
    ("width", "lines"), [(110, 1), (100, 1), (80, 1), (75, 1), (74, 2), (60, 2)]
)
def test_legend_is_whole(width: int, lines: int) -> None:
    """Tests that six signs (73 columns) take one line of a usual terminal, else two equal ones."""
    text = render_text(_report(), width=width)
    start = text.index("  █ weights")
    legend = text[start : text.index("Time of a step")].strip("\n").split("\n")
    assert len(legend) == lines
    assert " ".join(" ".join(legend).split()) == (
        "█ weights ▓ gradients ▒ optimizer ░ activations + at work - overhead"
    )
    if lines == 2:
        assert legend[1] == "  ░ activations  + at work  - overhead"


def test_many_ranks_are_summed_up() -> None:
    """Tests that 64 ranks take no more than 16 rows, and that the fullest rank is among them."""
    report = _report("pp=64,tp=1", gpus=64)
    assert report.cost is not None
    text = render_text(report)
    rows = [line for line in text.splitlines() if re.match(r"  (rank +\d+|\d+-\d+) ", line)]
    assert 1 <= len(rows) <= 16
    peak = f"{report.to_json()['memory']['peak_gib']:.1f} GiB"
    assert any(peak in row for row in rows)


def test_brackets_are_no_markup() -> None:
    """Tests that text in brackets, which the console library could take for styles, is kept."""
    plan = _plan(binding=("[red]tp[/red] [moe, mlp]",))
    assert "[red]tp[/red] [moe, mlp]" in render_text(plan)


def test_colour_is_only_where_it_is_asked_for() -> None:
    """Tests that plain text has no escape codes, and that colour changes no letter."""
    report = _report()
    plain, coloured = render_text(report), render_text(report, color=True)
    assert "\x1b[" not in plain
    assert "\x1b[" in coloured
    stripped = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in stripped.splitlines()] == plain.splitlines()
    assert str(report) == plain


@pytest.mark.parametrize(
    ("value", "text"),
    [(583.2, "583 s"), (1234.0, "1,234 s"), (34.56, "34.6 s"), (1.0, "1.00 s"), (0.0081, "8.1 ms")],
)
def test_durations_have_three_digits(value: float, text: str) -> None:
    """Tests durations from milliseconds to thousands of seconds."""
    assert seconds(value) == text


def test_counts_have_the_right_form() -> None:
    """Tests singular, plural and millions."""
    assert counted(1, "rule") == "1 rule"
    assert counted(0, "rule") == "0 rules"
    assert counted(38_603_304, "combination") == "38.6 million combinations"


@pytest.mark.parametrize(
    ("degrees", "text"),
    [
        ({"tp": 4, "dp": 2, "cp": 2, "etp": 4, "edp": 4}, "tp=4 cp=2 dp=2"),
        ({"tp": 4, "dp": 4, "ep": 8, "edp": 2}, "tp=4 dp=4 ep=8 edp=2"),
        ({"tp": 4, "dp": 2, "edp": 8}, "tp=4 dp=2 edp=8"),
        ({}, "one GPU"),
    ],
)
def test_the_grid_of_experts_is_told_where_it_is_another(
    degrees: dict[str, int], text: str
) -> None:
    """Tests that a dense model, whose etp and edp follow tp and dp*cp, shows neither."""
    names = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp", "edp", "mbs", "ga")
    assert short_layout({"layout": {**dict.fromkeys(names, 1), **degrees}}) == text

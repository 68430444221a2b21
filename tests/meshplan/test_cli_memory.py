from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import meshplan
from meshplan.cli.app import application
from meshplan.constraints.memory.stage import PARTS
from tests.meshplan.results import ROOT, small_file

PUBLISHED = str(ROOT / "scenarios" / "seed" / "dsv3-h100-128k-published.yaml")
#: A layout of the small scenario: 8 GPUs, two pipeline ranks.
TOY = "tp=2,ep=2,pp=2"
#: One of which every kind of change moves the peak.
LEVERED = (
    "cp=2,ep=2,pp=2,mbs=1,recompute=none,optimizer_offload=0,dispatcher=deepep,cp_comm=a2a,"
    "cuda_graphs=attn"
)
LAUNCH = """\
torchrun pretrain_gpt.py --tensor-model-parallel-size 2 --expert-model-parallel-size 2 \\
    --expert-tensor-parallel-size 1 --pipeline-model-parallel-size 2 --micro-batch-size 1 \\
    --global-batch-size 32 --num-experts 8 --moe-token-dispatcher-type alltoall --bf16 \\
    --sequence-parallel --use-distributed-optimizer --cross-entropy-loss-fusion
"""


def _memory(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["memory", *arguments])


def _data(*arguments: str) -> dict[str, Any]:
    run = _memory(*arguments, "--json", "-")
    data: dict[str, Any] = json.loads(run.stdout)
    return data


def _lines(text: str, start: str, end: str) -> list[str]:
    """The lines of a report from the title ``start`` up to the title ``end``."""
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(start))
    last = next(index for index, line in enumerate(lines) if line.startswith(end))
    return [line for line in lines[first + 1 : last] if line.strip()]


# -- the report --------------------------------------------------------------------------------


def test_published_layout() -> None:
    """Tests DeepSeek-V3 at 128K on 256 H100s: the fullest rank, its items and the levers."""
    run = _memory(PUBLISHED)
    assert run.exit_code == 0, run.output
    for part in (
        "OK: this layout is legal and fits.",
        "tp 1 × cp 32 × dp 1 × pp 8 = 256 GPUs, vpp 4",
        "Peak by event, GiB",
        "What rank 7 holds at its peak",  # the fullest: MTP layer, output layer and logits
        "routed experts of",
        "buffers of the deepep dispatcher",
        "with full recompute",
        "with the optimizer on the GPUs",
        "Assumed",
    ):
        assert part in run.output
    assert "Time of a step" not in run.output, "memory alone"
    assert max(map(len, run.output.splitlines())) <= 100


def test_items_of_the_report_add_up_to_the_peak() -> None:
    """Tests the printed figures: items to their part, parts to the peak of the title."""
    text = _memory(PUBLISHED, "--rank", "7").output
    title = next(line for line in text.splitlines() if line.startswith("What rank 7 holds"))
    peak = float(title.split("peak of ")[1].split()[0])
    parts: list[float] = []
    items: list[list[float]] = []
    for line in _lines(text, "What rank 7 holds", "What one change"):
        numbers = [float(word) for word in line.split() if word.replace(".", "", 1).isdigit()]
        if line.startswith("   "):
            items[-1].append(numbers[0])
        else:
            parts.append(numbers[-1])
            items.append([])
    assert sum(parts) == pytest.approx(peak, abs=0.005 * (len(parts) + 1))
    for part, names in zip(parts, items, strict=True):
        assert sum(names) == pytest.approx(part, abs=0.005 * (len(names) + 1))


def test_runs_of_equal_ranks_are_one_row() -> None:
    """Tests the table of events: 8 ranks of DeepSeek-V3 in at most 8 rows, the last with a loss."""
    rows = _lines(_memory(PUBLISHED).output, "Peak by event", "What rank")
    head, *ranks = rows
    assert head.split()[:5] == ["rank", "weights", "gradients", "optimizer", "overhead"]
    assert "loss" in head and "host" in head, "the optimizer is on the host"
    assert ranks[0].split()[0].startswith("0") and ranks[-1].split()[0].endswith("7")
    assert "-" in ranks[0].split() and "-" not in ranks[-1].split(), "the loss is on rank 7 alone"


# -- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["published", "toy", "toy-full", "toy-loss"])
def test_items_of_a_part_add_up_to_it(case: str, tmp_path: Path) -> None:
    """Tests each part of the shown rank; items and parts are rounded to a thousandth of a GiB."""
    toy = small_file(tmp_path)
    arguments = {
        "published": (PUBLISHED,),
        "toy": (toy, "--layout", TOY),
        "toy-full": (toy, "--layout", TOY + ",recompute=full"),
        "toy-loss": (toy, "--layout", TOY, "--rank", "1"),
    }[case]
    memory = _data(*arguments)["memory"]
    stage = memory["stages"][memory["items"]["rank"]]
    items = memory["items"]["parts"]
    assert {item["part"] for item in items} <= set(PARTS)
    for part in PARTS:
        sizes = [item["gib"] for item in items if item["part"] == part]
        total = stage[f"{part}_gib"]
        assert sum(sizes) == pytest.approx(total, abs=0.0005 * (len(sizes) + 1)), part
    assert all(item["name"] for item in items)


def test_the_fullest_rank_is_shown_unless_told(tmp_path: Path) -> None:
    """Tests ``--rank``, and the peak of the rank that is shown without it."""
    memory = _data(PUBLISHED)["memory"]
    shown = memory["stages"][memory["items"]["rank"]]
    assert shown["peak_gib"] == memory["peak_gib"]
    assert memory["peak_gib"] == max(stage["peak_gib"] for stage in memory["stages"])
    toy = small_file(tmp_path)
    for rank in (0, 1):
        data = _data(toy, "--layout", TOY, "--rank", str(rank))
        assert data["memory"]["items"]["rank"] == rank


def test_levers_say_what_a_change_gives(tmp_path: Path) -> None:
    """Tests each change of a toy by itself: ``check`` finds the peak and the step that it says."""
    toy = small_file(tmp_path)
    data = _data(toy, "--layout", LEVERED)
    memory = data["memory"]
    stated: Mapping[str, object] = dict(one.split("=") for one in LEVERED.split(","))
    now = meshplan.check(toy, LEVERED).to_json()["time"]["step_s"]
    levers = memory["levers"]
    assert [lever["peak_gib"] for lever in levers] == sorted(one["peak_gib"] for one in levers)
    paths = set()
    for lever in levers:
        key = lever["path"].partition(".")[2]
        paths.add(key)
        of_scenario = key in ("activation_offload", "cross_entropy")
        overrides = [f"{lever['path']}={json.dumps(lever['value'])}"] if of_scenario else []
        changed = stated if of_scenario else {**stated, key: lever["value"]}
        found = meshplan.check(meshplan.load(toy, overrides), changed).to_json()
        assert found["memory"]["peak_gib"] == lever["peak_gib"], lever["change"]
        assert lever["difference_gib"] == pytest.approx(lever["peak_gib"] - memory["peak_gib"])
        assert lever["difference_gib"] != 0, "what moves nothing is not told"
        assert found["time"]["step_s"] / now - 1 == pytest.approx(lever["step_change"], abs=2e-6)
        assert lever["verdict"] == found["memory"]["verdict"]
    assert paths == {
        "recompute", "optimizer_offload", "cp_comm", "dispatcher", "activation_offload",
        "cross_entropy", "cuda_graphs",
    }  # fmt: skip


def test_levers_of_the_published_layout() -> None:
    """Tests that what is recomputed costs memory without it: all of it, more than the GPU has."""
    levers = {lever["change"]: lever for lever in _data(PUBLISHED)["memory"]["levers"]}
    assert levers["with full recompute"]["difference_gib"] < 0
    for module in ("layernorm", "mla_up_proj", "mlp", "moe"):
        lever = levers[f"without recompute of {module}"]
        assert lever["difference_gib"] > 0 and module not in lever["value"]
    assert levers["without recompute of moe"]["verdict"] == "overfull"
    # 671 B parameters with 8 bytes of state (fp32 master, two bf16 moments) over 256 GPUs are
    # 19.5 GiB each, more or less by what a rank holds.
    assert 15 < levers["with the optimizer on the GPUs"]["difference_gib"] < 25


def test_levers_tell_what_graphs_take() -> None:
    """Tests Qwen3-235B at 128K: the pool of 2 GiB, and a copy of the input of each live layer.

    Those are 32768/4 tokens * 2 * 4096 bytes = 64 MiB for each of 98 layers: 6.125 GiB.
    """
    scenario = ROOT / "scenarios" / "seed" / "qwen3-235b-gb200-128k-bf16-published.yaml"
    levers = {lever["change"]: lever for lever in _data(str(scenario))["memory"]["levers"]}
    graphs = levers["without CUDA graphs"]
    assert (graphs["path"], graphs["value"]) == ("options.cuda_graphs", "none")
    assert graphs["difference_gib"] == pytest.approx(-8.125)


def test_json_has_the_keys_of_the_contract(tmp_path: Path) -> None:
    """Tests that a file gets the JSON while the terminal gets the report, as with check."""
    target = tmp_path / "out.json"
    run = _memory(small_file(tmp_path), "--layout", TOY, "--json", str(target))
    assert run.exit_code == 0 and "OK: this layout" in run.output
    data = json.loads(target.read_text("utf-8"))
    assert (data["meshplan_result"], data["name"], data["status"]) == (1, "small", "ok")
    assert set(data) == {
        "meshplan_result", "name", "status", "layout", "pipeline", "recompute",
        "optimizer_offload", "activation_offload", "dispatcher", "cuda_graphs", "memory",
        "advisories", "assumed", "violations", "scenario", "cluster",
    }  # fmt: skip
    assert set(data["memory"]["items"]["parts"][0]) == {"part", "name", "gib"}
    assert set(data["memory"]["levers"][0]) == {
        "change", "path", "value", "peak_gib", "difference_gib", "rank", "event", "verdict",
        "step_change",
    }  # fmt: skip


def test_quiet_prints_nothing(tmp_path: Path) -> None:
    """Tests that ``--quiet`` leaves the exit code."""
    run = _memory(small_file(tmp_path), "--layout", TOY, "--quiet")
    assert (run.exit_code, run.output) == (0, "")


# -- launch arguments --------------------------------------------------------------------------


def test_memory_of_a_launch_script(tmp_path: Path) -> None:
    """Tests ``--args``: degrees and recipe of the script, with the dropout of its command line."""
    script = tmp_path / "launch.sh"
    script.write_text(LAUNCH, "utf-8")
    file = small_file(tmp_path)
    run = _memory(file, "--args", str(script))
    assert run.exit_code == 0, run.output
    assert "tp 2 × cp 1 × dp 2 × pp 2 = 8 GPUs" in run.stdout
    assert "hidden_dropout 0.1" in run.stderr, "Megatron-LM's default, told"
    script.write_text(LAUNCH.rstrip() + " --hidden-dropout 0\n", "utf-8")
    without = _memory(file, "--args", str(script), "--json", "-")
    script.write_text(LAUNCH, "utf-8")
    with_masks = _memory(file, "--args", str(script), "--json", "-")
    peaks = [json.loads(run.stdout)["memory"]["peak_gib"] for run in (without, with_masks)]
    assert peaks[0] < peaks[1], "masks of dropout are kept"


def test_one_layout_alone(tmp_path: Path) -> None:
    """Tests that --layout and --args together are bad input."""
    run = _memory(small_file(tmp_path), "--layout", TOY, "--args", "tp2_pp2")
    assert run.exit_code == 2
    assert "--layout and --args both give a layout" in run.stderr


# -- exit codes --------------------------------------------------------------------------------


@pytest.mark.parametrize("rank", ["2", "-1", "64"])
def test_no_such_rank_is_bad_input(rank: str, tmp_path: Path) -> None:
    """Tests exit code 2 with the ranks that there are: a layout with pp = 2 has 0 and 1."""
    run = _memory(small_file(tmp_path), "--layout", TOY, "--rank", rank)
    assert run.exit_code == 2
    assert f"rank is {rank}, but the layout has the pipeline ranks 0 to 1" in run.stderr
    assert "Maybe " in run.stderr and run.stdout == "" and "Traceback" not in run.stderr


def test_illegal_layout_fails_with_its_memory(tmp_path: Path) -> None:
    """Tests exit code 1 for a layout that breaks a rule: the rule, and the memory all the same."""
    run = _memory(small_file(tmp_path), "--layout", "tp=3")
    assert run.exit_code == 1
    assert "heads-tp" in run.output and "What rank 0 holds" in run.output


def test_overfull_layout_fails(tmp_path: Path) -> None:
    """Tests exit code 1 for DeepSeek-V3 on 8 GPUs, and that no lever makes it fit."""
    arguments = (small_file(tmp_path), "--set", "model=deepseek-v3", "--layout", "ep=8")
    run = _memory(*arguments)
    assert run.exit_code == 1
    assert "Overfull: this layout is legal" in run.output
    assert "`meshplan memory`" not in run.output, "the changes are on this page"
    assert {one["verdict"] for one in _data(*arguments)["memory"]["levers"]} == {"overfull"}


def test_layout_without_memory_is_bad_input(tmp_path: Path) -> None:
    """Tests a layout string that does not hold the model's layers: there is nothing to add up."""
    run = _memory(small_file(tmp_path), "--layout", "pp=2,pipeline=Ett|tL")
    assert run.exit_code == 2
    assert "the layout has no memory to compute" in run.stderr


def test_python_function_gives_the_same(tmp_path: Path) -> None:
    """Tests ``meshplan.memory``: the report of the command, frozen, with the items as quanta."""
    file = small_file(tmp_path)
    report = meshplan.memory(file, TOY, rank=1)
    assert isinstance(report, meshplan.MemoryReport)
    assert (report.status, report.rank) == ("ok", 1)
    assert report.to_json() == _data(file, "--layout", TOY, "--rank", "1")
    assert "What rank 1 holds" in str(report)

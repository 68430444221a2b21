"""Do we say of public user reports what turned out to be true?  Prints a table.

Each report is a layout that somebody ran into trouble with, or was told would not run, with the
verdict that the thread, the framework's source or plain arithmetic gives.  The script turns each
into a scenario and a layout, lets :func:`meshplan.check` judge it (``meshplan.solve`` where no
layout is given), and compares verdict and rule::

    python benchmarks/user_reports.py [--json PATH] [FILE]

FILE defaults to ``benchmarks/data/user_reports.yaml``, whose head explains its form; any other
file of that form will do.  Figures that a report leaves out are filled in so that they cannot
break a rule.  Memory is judged only where all figures it rests on are given: full training, a
known GPU, a model with its widths.

A verdict agrees if *infeasible* meets *infeasible* and one of the rules that the report breaks is
among ours, or if both allow the layout (*feasible*, and *warn* for a layout that runs but should
not).  Reports about what a layout does not express are listed with the reason.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from math import lcm
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "benchmarks" / "data" / "user_reports.yaml"
#: Seconds for a report without a layout, which takes a search.
SOLVE_S = 30.0
MEMORY = "memory-capacity"

#: Our rules (regular expressions over their ids) by the number that reports give to a kind of rule.
RULES = {
    "R01": r"world-dense.*|dp-derived",
    "R02": r"world-expert.*|dense-expert-grid",
    "R03": r"heads-tp|gdn-heads-tpcp",
    "R04": r"kv-groups-tp|qkv-out-tp|cp-a2a-heads|heads-kv-groups",
    "R05": r"experts-ep|ep-needs-moe",
    "R06": r"gbs-divisible.*",
    "R07": r"layers-.*|account-.*|layout-decoder-count|slots-hold-layers",
    "R08": r"uneven-.*|layout-decoder-count|layout-stage-count",
    "R09": r"vpp-needs-pp.*",
    "R10": r"interleaved-.*",
    "R11": r"seq-2cp.*|sp-seq-divisible|bridge-sft-seq.*",
    "R12": r"sp-needs-tp.*|moe-tp-needs-sp",
    "R13": r"layout-.*",
    **dict.fromkeys(("R14", "R15", "R16", "R17"), MEMORY),
    "R23": r"deepep-.*|bridge-(deepep|hybridep)-.*|hybridep-.*|flex-.*",
    "R24": r"cg-.*|graphs?-.*|bridge-cg.*",
}
#: Kinds of rule that a layout does not express, and why.
BEYOND = {
    "R18": "host memory of loader processes is no part of a layout",
    "R25": "scheduler placement is no part of a layout",
    "R26": "a cluster here has one kind of GPU",
    "R27": "which value a run resolves is not in the report",
    "R28": "a property of an estimator, not a layout: see the tests of the memory model",
}
#: Repositories whose attention replicates no KV heads: megatron-core before 0.16 has their rule.
NO_REPLICATION = ("torchtitan", "transformers", "Automodel")

#: Shipped cards by what a model's name contains.
CARDS = {
    r"deepseek-v3": "deepseek-v3",
    r"kimi-k2": "kimi-k2",
    r"llama-3(\.1)?-405b": "llama-3.1-405b",
    r"llama-3(\.1)?-70b": "llama-3.1-70b",
    r"llama-3(\.1)?-8b": "llama-3.1-8b",
    r"moonlight-16b": "moonlight-16b-a3b",
    r"qwen3-(vl-|omni-)?235b": "qwen3-235b-a22b",
    r"qwen3-(vl-|omni-)?30b": "qwen3-30b-a3b",
    r"qwen3-next-80b": "qwen3-next-80b-a3b",
    r"gpt-oss-120b": "gpt-oss-120b",
}
#: Presets by what a GPU's name starts with; the first stands in for GPUs that we do not know.
PRESETS = {
    "H100": "h100-hgx", "A100": "a100-hgx", "A800": "a100-hgx", "H200": "h200-hgx",
    "H800": "h800-hgx", "B200": "b200-hgx", "B300": "b300-hgx", "GB200": "gb200-nvl72",
    "GB300": "gb300-nvl72",
}  # fmt: skip
_MODEL_KEYS = {
    "layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_groups",
    "head_dim": "head_dim", "ffn": "ffn", "vocab": "vocab", "experts": "experts", "topk": "topk",
    "moe_ffn": "moe_ffn", "dense_first": "dense_layers", "shared_ffn": "shared_ffn",
}  # fmt: skip
_DEGREES = ("tp", "cp", "pp", "vpp", "dp", "ep", "etp")


class OutOfScope(Exception):
    """A report that cannot be put as a layout; the text is the reason."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    id: str
    source: str
    expected: str
    expected_rules: tuple[str, ...]
    ours: str
    our_rules: tuple[str, ...]
    agree: bool | None
    note: str


# -- from a report to a scenario and a layout ----------------------------------------------------


class Report:
    """One report, and what it means in our terms."""

    def __init__(self, case: dict[str, Any], memory_gb: dict[str, float]) -> None:
        self.case = case
        self.id = str(case["id"])
        self.source: dict[str, str] = case.get("source") or {}
        self.model: dict[str, Any] = case.get("model") or {}
        self.cluster: dict[str, Any] = case.get("cluster") or {}
        self.written: dict[str, Any] = case.get("layout") or {}
        self.other: dict[str, Any] = case.get("other") or {}
        expect = case["expect"]
        self.verdict = str(expect["verdict"])
        self.rules = tuple(expect.get("rules") or ())
        self.memory_gb = memory_gb
        self.filled: list[str] = []
        self._judged()
        self.gpus = int(self.cluster["count"])
        self.degrees = self._degrees()

    def _judged(self) -> None:
        """Refuse what is no question about one layout."""
        case = self.case
        if case.get("out_of_scope"):
            raise OutOfScope(str(case["out_of_scope"]))
        if self.rules and set(self.rules) <= set(BEYOND):
            raise OutOfScope(BEYOND[self.rules[0]])
        if not isinstance(self.cluster.get("count"), int):
            raise OutOfScope("the number of GPUs is not given")
        if "unknown" in self.written:
            raise OutOfScope("the layout is not given")
        sharded = int(self.written.get("zero_stage") or 0) >= 2 or "fsdp" in self.written
        if sharded or "dp_shard" in self.written and "R02" not in self.rules:
            raise OutOfScope("fully sharded weights (ZeRO-2/3, FSDP) are not planned here")
        if "full iteration" in str(self.other.get("cuda_graph", "")) and "R24" in self.rules:
            raise OutOfScope("full-iteration CUDA graphs are not planned here")
        for name in _DEGREES:
            if not isinstance(self.written.get(name, 1), int):
                raise OutOfScope(f"{name} = {self.written[name]} is not one layout")

    def _degrees(self) -> dict[str, int]:
        written = dict(self.written)
        if "dp" not in written and "dp_shard" in written:
            written["dp"] = written["dp_shard"]
        found = {name: int(written[name]) for name in _DEGREES if name in written}
        for name in ("tp", "cp", "pp", "vpp", "ep"):
            found.setdefault(name, 1)
        if "etp" not in found:
            unset = str(self.other.get("etp", ""))
            repo = self.source.get("repo", "")
            one = unset == "" or "swift" in repo or "Bridge" in repo
            found["etp"] = found["tp"] if not (one and self.is_moe) else 1
        return found

    @property
    def is_moe(self) -> bool:
        """Whether the model has experts, or the layout expert parallelism."""
        name = str(self.model.get("name", "")).lower()
        return bool(self.model.get("experts") or self.written.get("ep", 1) != 1 or "moe" in name)

    @property
    def card(self) -> str | None:
        """The shipped card of the model, if there is one."""
        name = str(self.model.get("name", "")).lower()
        return next((card for key, card in CARDS.items() if re.search(key, name)), None)

    @property
    def string(self) -> str | None:
        """The split of the layers as a layout string, if the report gives one."""
        written, pp = self.written, self.degrees["pp"]
        if "pp_layout" in written:
            return str(written["pp_layout"])
        counts = written.get("split")
        if not isinstance(counts, list):
            ends = [written.get("first"), written.get("last")]
            layers = self.model.get("layers")
            if ends == [None, None] or not isinstance(layers, int):
                return None
            middle = pp - sum(end is not None for end in ends)
            share = (layers - sum(end or 0 for end in ends)) // middle if middle else 0
            head, tail = ([end] if end is not None else [] for end in ends)
            counts = [*head, *[share] * middle, *tail]
        return "E" + "|".join(f"t*{count}" for count in counts) + "L"

    def scenario(self) -> dict[str, Any]:
        """The scenario; nothing of the layout is pinned in it."""
        tokens = 2 * self.degrees["cp"] * self.degrees["tp"] * 32
        seq_len = self.case.get("seq_len") or -(-4096 // tokens) * tokens
        return {
            "meshplan": 1,
            "name": "report",
            "model": self._model(),
            "cluster": self._cluster(),
            "workload": {
                "seq_len": seq_len,
                "global_batch_size": self._batch(),
                "precision": self._precision(),
            },
            # The report is held to the framework's rules only, not to what we advise.
            "limits": {"tp_within_domain": False, "ep_within_domain": False},
            "framework": {"version": "0.15" if self._no_replication() else "0.19"},
        }

    def _no_replication(self) -> bool:
        return any(self.source.get("repo", "").endswith(name) for name in NO_REPLICATION)

    def _precision(self) -> str:
        text = str(self.other.get("precision", "bf16"))
        found = {"mxfp8": "mxfp8", "block": "fp8-block", "fp8-cs": "fp8-current"}
        return next((name for key, name in found.items() if key in text), "bf16")

    def _batch(self) -> int:
        if self.case.get("gbs"):
            return int(self.case["gbs"])
        d = self.degrees
        dp = d.get("dp") or max(1, self.gpus // (d["tp"] * d["cp"] * d["pp"]))
        micro = self.written.get("microbatches") or self.other.get("ga") or 4 * d["pp"]
        return int(self.case.get("mbs") or 1) * dp * int(micro)

    def _cluster(self) -> dict[str, Any]:
        gpu = str(self.cluster.get("gpu", ""))
        preset = next((p for name, p in PRESETS.items() if gpu.startswith(name)), None)
        if preset is None:
            self.filled.append(f"H100 stands in for {gpu}")
            preset = "h100-hgx"
        node = self.cluster.get("gpus_per_node") or 8
        domain = int(self.cluster.get("nvlink_domain") or node)
        if "nvl72" in preset or domain >= 8:
            return {"preset": preset, "gpus": self.gpus}
        whole, rest = divmod(self.gpus, domain)
        return {"preset": preset, "domains": [domain] * whole + [rest] * bool(rest)}

    def _model(self) -> dict[str, Any]:
        given = {
            ours: self.model[key]
            for key, ours in _MODEL_KEYS.items()
            if isinstance(self.model.get(key), int)
        }
        given["mtp_layers"] = (self.string or "").count("m") or int(self.model.get("mtp") or 0)
        if self.card is not None:
            return {"card": self.card, **given}
        return self._whole(given)

    def _whole(self, given: dict[str, Any]) -> dict[str, Any]:
        """A card from the figures given; the others are such that every degree divides them."""
        d = self.degrees
        split = d["tp"] * d["cp"]
        fill: dict[str, Any] = {"layers": 2 * d["pp"] * d["vpp"], "heads": lcm(8, split)}
        heads = given.get("heads", fill["heads"])
        hidden = given.get("hidden", heads * 128)
        fill |= {
            "hidden": hidden, "kv_groups": heads,
            "head_dim": hidden // heads if hidden % heads == 0 else 128,
            "vocab": 32000,
        }  # fmt: skip
        if self.is_moe:
            fill |= {"experts": 8 * d["ep"], "moe_ffn": 256 * d["etp"], "dense_layers": 0}
            fill["topk"] = min(8, given.get("experts", fill["experts"]))
        if not self.is_moe or given.get("dense_layers"):
            fill["ffn"] = 128 * split * max(1, 4 * hidden // (128 * split))
        fill["attention"] = "gqa"
        if "MLA" in str(self.model.get("attention", "")):
            fill |= {
                "attention": "mla", "q_lora_rank": 1536, "kv_lora_rank": 512,
                "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
            }  # fmt: skip
            given = {key: value for key, value in given.items() if key != "kv_groups"}
        absent = [key for key in fill if key not in given and key in ("layers", "heads", "experts")]
        if absent:
            self.filled.append(f"{', '.join(absent)} filled in")
        return {"name": "reported-model", **fill, **given}

    def layout(self) -> dict[str, Any]:
        """The layout, with all degrees and what is said about options."""
        stated: dict[str, Any] = {**self.degrees, "mbs": int(self.case.get("mbs") or 1)}
        micro = self.written.get("microbatches") or self.other.get("ga")
        if isinstance(micro, int):
            stated["ga"] = micro
        text = str(self.written.get("dispatcher") or self.other.get("dispatcher") or "").lower()
        named = [name for name in ("deepep", "hybridep", "alltoall") if name in text]
        stated["dispatcher"] = named[0] if named else "alltoall"
        if "a2a" in str(self.written.get("cp_type", "")):
            stated["cp_comm"] = "a2a"
        recompute = str(self.other.get("recompute", ""))
        if recompute in ("full", "none"):
            stated["recompute"] = recompute
        stated["offload"] = 100 if self.other.get("optimizer_cpu_offload") else 0
        if self.string is not None:
            stated["pipeline"] = self.string
        elif self.case.get("complete") == "full" and self.degrees["pp"] > 1:
            stated["pipeline"] = "even"  # what the framework does if nothing is said
        return stated

    def memory_gib(self) -> float | None:
        """Memory of the GPU in GiB, or None where the report leaves too much open to judge it."""
        gpu = str(self.cluster.get("gpu", ""))
        known = next((gb for key, gb in self.memory_gb.items() if gpu.startswith(key)), None)
        partly = "LoRA" in str(self.other.get("mode", "")) or "offload" in self.other
        widths = self.card or (
            {"layers", "hidden", "heads"} <= set(self.model)
            and (not self.is_moe or "moe_ffn" in self.model)
        )
        if known is None or partly or not widths or self.case.get("complete") == "none":
            return None
        return known * 1e9 / 2**30


# -- our verdict ---------------------------------------------------------------------------------


def judge(case: dict[str, Any], memory_gb: dict[str, float]) -> Row:
    """Our verdict on one report next to the expected one."""
    from meshplan.scenarios.errors import InputError

    expect, source = case["expect"], case.get("source") or {}
    head = (
        str(case["id"]),
        f"{source.get('repo', '')} {source.get('ref', '')}".strip(),
        str(expect["verdict"]),
        tuple(expect.get("rules") or ()),
    )
    try:
        report = Report(case, memory_gb)
        ours, rules, note = _verdict(report)
        if report.verdict == "infeasible" and ours != "infeasible" and _needs_memory(report):
            raise OutOfScope("memory: the report leaves open what it rests on")
    except OutOfScope as reason:
        return Row(*head, "-", (), None, f"out of scope: {reason}")
    except InputError as error:
        return Row(*head, "error", (), False, str(error).splitlines()[0])
    return Row(*head, ours, rules, _agrees(report, ours, rules), note)


def _needs_memory(report: Report) -> bool:
    judged = {rule for rule in report.rules if rule in RULES}
    return bool(judged) and all(RULES[rule] == MEMORY for rule in judged) and not (
        report.memory_gib()
    )


def _agrees(report: Report, ours: str, rules: tuple[str, ...]) -> bool:
    if (report.verdict == "infeasible") != (ours == "infeasible"):
        return False
    if ours != "infeasible":
        return True
    patterns = [RULES[rule] for rule in report.rules if rule in RULES]
    return any(re.fullmatch(pattern, rule) for pattern in patterns for rule in rules)


def _verdict(report: Report) -> tuple[str, tuple[str, ...], str]:
    import meshplan

    data = report.scenario()
    if not report.written:
        data["options"] = {"optimizer_offload": False}
        result = meshplan.solve(meshplan.scenarios.from_mapping(data), time_limit_s=SOLVE_S)
        if isinstance(result, meshplan.Infeasible):
            return "infeasible", result.conflicts[0].rules, "by search"
        return result.status, (), "by search"
    checked = meshplan.check(meshplan.scenarios.from_mapping(data), report.layout())
    notes = list(report.filled)
    if checked.violations:
        return "infeasible", tuple(one.rule for one in checked.violations), "; ".join(notes)
    room = report.memory_gib()
    if room is not None and checked.cost is not None:
        peak = checked.cost.peak * 2.0**-12  # quanta of 256 KiB
        notes.insert(0, f"{peak:.0f} of {room:.0f} GiB")
        if peak > room:
            return "infeasible", (MEMORY,), "; ".join(notes)
    warnings = tuple(_warnings(checked))
    return ("warn" if warnings else "feasible"), warnings, "; ".join(notes)


def _warnings(checked: Any) -> Iterator[str]:
    """Groups that leave their NVLink domain, too few micro-batches, and advice."""
    layout, cluster = checked.layout, checked.problem.cluster
    blocks = {"tp": layout.tp, "cp": layout.tp * layout.cp, "ep": layout.etp * layout.ep}
    for kind, block in blocks.items():
        if getattr(layout, kind) > 1 and not cluster.fits_domain(min(block, cluster.gpus)):
            yield f"{kind}-leaves-domain"
    if layout.ga < 2 * layout.pp and layout.pp > 1:
        yield "few-micro-batches"
    yield from (name for name, _ in checked.advisories)


# -- the table -----------------------------------------------------------------------------------


def table(rows: list[Row]) -> str:
    """All rows, then the totals."""
    lines = [f"{'id':8}{'expected':12}{'rules':18}{'ours':12}{'':4}rules, warnings; note"]
    for row in rows:
        if row.agree is None:
            lines.append(f"{row.id:8}{row.expected:12}{' '.join(row.expected_rules):18}{row.note}")
            continue
        mark = "ok" if row.agree else "NO"
        what = "; ".join(part for part in (", ".join(row.our_rules), row.note) if part)
        lines.append(
            f"{row.id:8}{row.expected:12}{' '.join(row.expected_rules):18}{row.ours:12}{mark:4}{what}"
        )
    judged = [row for row in rows if row.agree is not None]
    agreed = sum(bool(row.agree) for row in judged)
    lines.append(
        f"{len(rows)} reports: {agreed} of {len(judged)} judged agree, "
        f"{len(rows) - len(judged)} out of scope"
    )
    return "\n".join(lines)


def judge_file(path: Path) -> list[Row]:
    """All reports of a file, judged, in its order."""
    data = yaml.safe_load(path.read_text("utf-8"))
    memory = data.get("meta", {}).get("gpu_mem_gb", {})
    # Longest names first: A100-80 before A100.
    memory_gb = dict(sorted(memory.items(), key=lambda item: -len(item[0])))
    return [judge(case, memory_gb) for case in data["cases"]]


def main() -> int:
    """Judge a file of reports; exit code 1 if any verdict differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=DATA, metavar="FILE")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the rows as JSON, too")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    rows = judge_file(arguments.file)
    print(table(rows))
    if arguments.json is not None:
        text = json.dumps([asdict(row) for row in rows], indent=1)
        arguments.json.write_text(text + "\n", "utf-8")
    return int(any(row.agree is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())

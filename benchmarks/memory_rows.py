"""Rows of runs with measured memory: read from CSV files of two forms into one.

The forms are told apart by their header: ``measured_peak_gib`` marks the form of
``data/memory_runs.csv``, ``mem_gb`` that of ``data/memory_published.csv``.  Nothing is interpreted
here beyond numbers and units; :mod:`benchmarks.memory_words` reads the texts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from meshplan.scenarios.checks import MAX_DEGREE
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.model_card import MOST_MTP_LAYERS
from meshplan.scenarios.tables import Table, TableRow, read_table
from meshplan.scenarios.yaml_reader import shorten

_GIB = 1 << 30
_DEGREES = ("tp", "cp", "ep", "etp", "pp", "dp")
_COUNTS = (*_DEGREES, "num_gpus", "mbs", "gbs")
#: More memory than a GPU has in any unit.
_MOST_GB = 1e6
_SHARED = ("row_id", "source", "model", "gpu", "num_gpus", *_DEGREES,
           "mbs", "gbs", "seq_len", "precision", "fsdp", "dispatcher", "notes")  # fmt: skip
_RUNS = (
    *_SHARED, "gpu_mem_gb", "vpp", "distributed_optimizer", "optimizer_dtypes", "optimizer_offload",
    "recompute_granularity", "recompute_modules", "recompute_layers", "activation_offload",
    "attention_impl", "cuda_graphs", "ce_impl", "measured_peak_gib", "measured_kind",
    "measured_reserved_gib", "device_used_gib", "verdict", "stage_rank",
)  # fmt: skip
_PUBLISHED = (
    *_SHARED, "vp", "release", "phase", "mem_gb", "mem_unit", "mem_kind", "mem_reserved_gb",
    "run_status", "recompute", "cuda_graph", "offload", "pipeline_layout", "mtp", "routing",
    "rcp_recompute", "rcp_dispatcher", "rcp_cuda_graph", "rcp_offload", "rcp_pipeline_layout",
    "rcp_mtp_layers", "rcp_moe_a2a_overlap", "rcp_optimizer_dtypes", "rcp_seq_parallel",
)  # fmt: skip
#: Settings that a row may leave open; of two rows with one figure the one that states more counts.
_SETTINGS = ("optimizer", "offload", "recompute", "activation_offload", "attention", "dispatcher",
             "graphs", "cross_entropy", "layout", "gbs", "mbs", "mtp")  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A measured amount of memory, and in the row's words what was measured."""

    gib: float
    kind: str


@dataclass(frozen=True)
class Run:
    """One row.  Numbers that the row leaves open are None, texts are empty."""

    file: str
    line: int
    id: str
    source: str
    model: str
    phase: str
    release: str
    gpu: str
    gpu_gb: float | None
    num_gpus: int | None
    tp: int | None
    cp: int | None
    ep: int | None
    etp: int | None
    pp: int | None
    vpp: int | None
    dp: int | None
    mbs: int | None
    gbs: int | None
    seq_len: int | None
    precision: str
    optimizer: str
    distributed_optimizer: bool
    offload: str
    recompute: str
    activation_offload: str
    fsdp: str
    attention: str
    dispatcher: str
    routing: str
    expert_overlap: bool
    graphs: str
    cross_entropy: str
    layout: str
    mtp: int | None
    sequence_parallel: bool
    figures: tuple[Figure, ...]
    verdict: str
    rank: str
    notes: str

    @property
    def settings(self) -> int:
        """How many settings the row states."""
        return sum(bool(getattr(self, name)) for name in _SETTINGS)


class _Row(TableRow):
    """A row in which a figure may be about so much, or a range."""

    def figure(self, column: str) -> float | None:
        """A positive number; ``~`` says about, and the middle stands for a range ``69-70``."""
        text = self.text(column)
        if not text:
            return None
        parts = re.fullmatch(r"~?(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text, re.ASCII)
        if parts is None or len(text) > 40:
            raise self.fault(column, "a positive number")
        middle = (float(parts[1]) + float(parts[2] or parts[1])) / 2
        return self.within(column, middle if float(parts[1]) > 0 else 0, _MOST_GB)

    def flag(self, column: str, default: bool) -> bool:
        text = self.text(column).lower()
        if text not in ("", "0", "1", "true", "false"):
            raise self.fault(column, "0 or 1")
        return default if not text else text in ("1", "true")

    def degrees(self) -> dict[str, int | None]:
        degrees = {name: self.whole(name, most=MAX_DEGREE) for name in _COUNTS}
        return degrees | {"seq_len": self.whole("seq_len")}


def read_runs(path: Path) -> list[Run]:
    """All rows of a file.

    Raises
    ------
    InputError
        If the file cannot be read, is of neither form, or a cell is not what its column holds.
    """
    table = read_table(path)
    build = _form(table)
    return [build(_Row(row.file, row.line, row.cells)) for row in table.rows]


def _form(table: Table) -> Callable[[_Row], Run]:
    """How to read the rows of a file with this header."""
    if "measured_peak_gib" in table.columns:
        table.require(_RUNS, "benchmarks/data/memory_runs.csv")
        return _from_runs
    if "mem_gb" in table.columns or not table.line:
        table.require(_PUBLISHED, "benchmarks/data/memory_runs.csv or memory_published.csv")
        return _from_published
    raise InputError(
        "the header has neither measured_peak_gib nor mem_gb: "
        + shorten(", ".join(table.columns), 200),
        advice="the first line of the file is missing, or it is another kind of file.",
        file=table.file,
        line=table.line,
    )


def _from_runs(row: _Row) -> Run:
    verdict = row.text("verdict").lower()
    if verdict not in ("", "fits", "oom"):
        raise row.fault("verdict", "fits, oom or empty")
    figures = [
        Figure(gib, kind)
        for column, kind in (
            ("measured_peak_gib", row.text("measured_kind") or "not stated"),
            ("measured_reserved_gib", "reserved"),
            ("device_used_gib", "device"),
        )
        if (gib := row.figure(column)) is not None
    ]
    recompute = [row.text(f"recompute_{part}") for part in ("granularity", "modules", "layers")]
    return Run(
        file=row.file,
        line=row.line,
        id=row.text("row_id"),
        source=row.text("source"),
        model=row.text("model"),
        phase="",
        release="",
        gpu=row.text("gpu"),
        gpu_gb=row.figure("gpu_mem_gb"),
        vpp=row.whole("vpp", most=MAX_DEGREE),
        precision=row.text("precision"),
        optimizer=row.text("optimizer_dtypes"),
        distributed_optimizer=row.flag("distributed_optimizer", True),
        offload=row.text("optimizer_offload"),
        recompute=" ".join(part for part in recompute if part),
        activation_offload=row.text("activation_offload"),
        fsdp=row.text("fsdp"),
        attention=row.text("attention_impl"),
        dispatcher=row.text("dispatcher"),
        routing="natural" if "natural routing" in row.text("notes") else "",
        expert_overlap=False,
        graphs=row.text("cuda_graphs"),
        cross_entropy=row.text("ce_impl"),
        layout="",
        mtp=None,
        sequence_parallel=True,
        figures=tuple(figures),
        verdict=verdict,
        rank=row.text("stage_rank"),
        notes=row.text("notes"),
        **row.degrees(),
    )


def _recompute(row: _Row) -> str:
    """What the run says; else what its performance recipe resolves to.

    "(recipe@HEAD)" marks what was read from the library recipe of that name, not from the run.
    """
    said, resolved = row.text("recompute"), row.text("rcp_recompute")
    return resolved if resolved and (not said or "(recipe@HEAD)" in said) else said


def _from_published(row: _Row) -> Run:
    unit = row.text("mem_unit")
    if unit not in ("", "GB", "GiB"):
        raise row.fault("mem_unit", "GB or GiB")
    scale = 1.0 if unit == "GiB" else 1e9 / _GIB
    kind = row.text("mem_kind")
    figures = [
        Figure(amount * scale, what)
        for column, what in (("mem_gb", kind or "not stated"), ("mem_reserved_gb", "reserved"))
        if (amount := row.figure(column)) is not None
    ]
    status = row.text("run_status").lower()
    notes = row.text("notes")
    stated = re.search(r"optimizer dtypes \([^)]*\): ([^;]*)", notes)
    graphs = [row.text("cuda_graph"), row.text("rcp_cuda_graph")]
    tp, offload = row.whole("tp"), row.text("offload")
    return Run(
        file=row.file,
        line=row.line,
        id=row.text("row_id"),
        source=row.text("source"),
        model=row.text("model"),
        phase=row.text("phase"),
        release=row.text("release"),
        gpu=row.text("gpu").upper(),
        gpu_gb=None,
        vpp=row.whole("vp", most=MAX_DEGREE),
        precision=row.text("precision"),
        optimizer=row.text("rcp_optimizer_dtypes") or (stated[1] if stated else ""),
        distributed_optimizer=True,
        offload=offload if offload.startswith("optimizer") else "",
        recompute=_recompute(row),
        activation_offload=""
        if offload.startswith("optimizer")
        else offload or row.text("rcp_offload"),
        fsdp="" if row.text("fsdp") == "0" else row.text("fsdp"),
        attention="",
        dispatcher=row.text("dispatcher") or row.text("rcp_dispatcher"),
        routing=row.text("routing"),
        expert_overlap=row.text("rcp_moe_a2a_overlap").lower() == "true",
        graphs=next((text for text in graphs if "=" in text or ":" in text), graphs[0]),
        cross_entropy="",
        layout=(row.text("pipeline_layout") or row.text("rcp_pipeline_layout")).removeprefix(
            "list:"
        ),
        mtp=row.whole("mtp" if row.text("mtp") else "rcp_mtp_layers", 0, MOST_MTP_LAYERS),
        sequence_parallel=tp in (None, 1) or row.text("rcp_seq_parallel").lower() != "false",
        figures=tuple(figures),
        verdict="oom" if "oom" in status else "fits" if status == "ok" else "",
        rank="rank 0" if re.search(r"rank[ -]0", kind) else "",
        notes=notes,
        **row.degrees(),
    )

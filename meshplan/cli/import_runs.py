"""``meshplan import runs``: training logs as rows of measured runs for ``meshplan calibrate``."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from meshplan.cli.part_output import PartOutput, part_options

if TYPE_CHECKING:
    from meshplan.scenarios import ModelCard, Scenario
    from meshplan.scenarios.importers import MegatronArguments, ScenarioPart
    from meshplan.scenarios.importers.megatron_log import TrainingLog
    from meshplan.scenarios.importers.steady_steps import SteadyStep

#: Degrees that a layout has as they are printed.
_DEGREES = {
    "tp": "tensor_model_parallel_size",
    "cp": "context_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "mbs": "micro_batch_size",
}
_HEADER = ("scenario", "layout", "step_s", "name")


@dataclass(frozen=True)
class _Row:
    log: TrainingLog
    step: SteadyStep
    scenario: str
    layout: str
    name: str
    notes: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def cells(self) -> dict[str, str]:
        return {
            "scenario": self.scenario,
            "layout": self.layout,
            "step_s": f"{self.step.step_s:.6g}",
            "name": self.name,
        }


@click.command(name="runs", short_help="Training logs, as measured runs.")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@click.option("--scenario", "file", metavar="FILE", required=True, help="Scenario of the runs.")
@click.option(
    "--layout",
    metavar="TEXT",
    help="Layout of the runs, as for `meshplan check`; else the arguments printed in the log, or "
    "the scenario's pins.",
)
@click.option(
    "--skip",
    type=click.IntRange(min=0),
    metavar="N",
    help="Steps at each start that are left out; by default 5, or a third of a short log.",
)
@part_options
def import_runs(
    logs: tuple[str, ...],
    file: str,
    layout: str | None,
    skip: int | None,
    output: str | None,
    json_path: str | None,
) -> None:
    """Read how long the steps in training logs of Megatron-LM or Megatron-Bridge took.

    Prints a row for each LOG (`-` is standard input), as `meshplan calibrate` takes them: the
    median step without warm-up, evaluations and checkpoints.  Each log is one run.  A log of
    another model or cluster than the scenario's is refused.
    """
    import meshplan
    from meshplan.cli.imports import print_findings
    from meshplan.cli.logged_run import objections
    from meshplan.scenarios import input_files, resolve_model
    from meshplan.scenarios.importers.megatron_log import read_log_file
    from meshplan.scenarios.importers.steady_steps import steady_step

    scenario = meshplan.load(file)
    given: dict[str, str | Path] = {f"log {n}": log for n, log in enumerate(logs, 1)}
    target = PartOutput(output, json_path, {**input_files(scenario), **given})
    model = resolve_model(scenario)
    folder = None if target.path is None else os.path.dirname(os.path.realpath(target.path))
    shown = _relative(file, folder)
    rows, findings, alarms = [], [], []
    for log in logs:
        read = read_log_file(log)
        step = steady_step(read, skip)
        text, notes = _layout_of(read, step, layout, scenario, model)
        notes = [*read.notes, *step.notes, *_interrupted(step), *notes]
        row = _Row(read, step, shown, text, _name(log), tuple(notes),
                   objections(scenario, text, read, step))  # fmt: skip
        rows.append(row)
        findings += [f"{row.name}: {said}" for said in (_measured(step), *row.notes)]
        alarms += [f"{row.name}: {said}" for said in row.warnings]
    content, doubled = _table(rows, target.path)
    target.deliver(content, {"runs": [_data(row) for row in rows]})
    print_findings([*findings, *doubled])
    print_findings(alarms, "warning")


def _relative(file: str, folder: str | None) -> str:
    """The scenario's path as the table shall have it: from its own folder."""
    return file if folder is None else os.path.relpath(os.path.realpath(file), folder)


def _name(log: str) -> str:
    from meshplan.scenarios.errors import one_line

    name = Path(log).name if log != "-" else "standard-input"
    return one_line(name)[:80]


def _measured(step: SteadyStep) -> str:
    from meshplan.solver.report.words import counted

    left = [f"{step.warm_up} of warm-up"] if step.warm_up else []
    left += [f"{step.outliers} far from the median"] if step.outliers else []
    left += [f"{step.faulty} without an update or of another batch"] if step.faulty else []
    out = f"; left out: {', '.join(left)}" if left else ""
    rate = f", {step.tflops:.1f} TFLOP/s per GPU" if step.tflops is not None else ""
    return f"{step.step_s:.6g} s{rate}, over {counted(step.kept, 'line')} ± {step.spread:.1%}{out}"


def _layout_of(
    log: TrainingLog,
    step: SteadyStep,
    layout: str | None,
    scenario: Scenario,
    model: ModelCard,
) -> tuple[str, list[str]]:
    """Layout of a run as text, and what to know about it.

    Raises
    ------
    InputError
        If the log is of another workload or cluster than the scenario, or of another batch than
        the layout.
    """
    from meshplan.scenarios.errors import InputError
    from meshplan.scenarios.importers.agreement import disagreements, with_recipe
    from meshplan.scenarios.importers.run_layout import layout_words, refuse_other_run

    notes: list[str] = []
    text = layout
    printed = log.arguments or log.configuration
    if printed is None:
        if layout is None:
            notes.append("no arguments are printed in the log: the layout is that of the scenario")
    else:
        part = printed.to_scenario_part(model.layers)
        refuse_other_run(printed, part, scenario, model)
        if log.arguments is not None:
            notes += disagreements(printed, part, scenario, model)
            notes += [
                f"{said}: put it into the scenario" for said in with_recipe(scenario, part)[1]
            ]
        if layout is None:
            notes += part.notes
            text = layout_words(part.stated_layout())
        else:
            _refuse_other_layout(printed, part, layout)
    batch = step.batch
    given = _stated_batch(text)
    if batch is not None and given is not None and given != batch:
        raise InputError(
            f"the log has global batch size {batch}, but the layout has gbs = {given}",
            advice=f"write gbs={batch} in --layout.",
            file=log.source,
        )
    allowed = scenario.workload.global_batch_size
    if batch is not None and given is None and not (
        allowed.allowed(batch) and allowed.written() == str(batch)
    ):  # fmt: skip
        text = f"{text},gbs={batch}" if text else f"gbs={batch}"
    return text or "", notes


def _refuse_other_layout(printed: MegatronArguments, part: ScenarioPart, layout: str) -> None:
    """Refuse a layout with other degrees than those that were printed."""
    from meshplan.scenarios.importers.megatron_flags import spelt
    from meshplan.solver.layout_text import read_layout

    given = read_layout(layout).degrees
    for key, name in _DEGREES.items():
        ran, asked = part.layout.get(key), given.get(key)
        if printed.get(name) is not None and ran is not None and asked not in (ran, None):
            raise printed.error(
                name,
                f"the run had {spelt(name)} {ran}, but --layout has {key} = {asked}",
                f"write {key}={ran}, or leave --layout away.",
            )


def _stated_batch(text: str | None) -> int | None:
    from meshplan.solver.layout_text import read_layout

    return read_layout(text).degrees.get("gbs") if text else None


def _interrupted(step: SteadyStep) -> list[str]:
    """Iterations of the log that trained nothing."""
    from meshplan.solver.report.words import counted

    kinds = ((step.skipped, "skipped, without an update"), (step.nan, "NaN"))
    return [f"{counted(n, 'iteration')} of the log {said}" for n, said in kinds if n]


def _data(row: _Row) -> dict[str, Any]:
    step = row.step
    return {
        **row.cells,
        "step_s": step.step_s,
        "source": row.log.source,
        "form": row.log.form,
        "spread": round(step.spread, 6),
        "lines": {
            "kept": step.kept,
            "warm_up": step.warm_up,
            "outliers": step.outliers,
            "faulty": step.faulty,
        },
        "iterations": {"skipped": step.skipped, "nan": step.nan},
        "tflops_per_gpu": step.tflops,
        "global_batch_size": step.batch,
        "notes": list(row.notes),
        "warnings": list(row.warnings),
    }


def _table(rows: list[_Row], path: str | None) -> tuple[str, list[str]]:
    """The table with the rows added to what ``path`` holds, and what was left out."""
    from meshplan.scenarios.errors import InputError
    from meshplan.scenarios.files import read_file
    from meshplan.scenarios.tables import read_table

    old, table = "", None
    if path is not None and Path(path).is_file():
        old, table = read_file(path), read_table(path, whole_rows=False)
    buffer = io.StringIO()
    buffer.write(f"{old.rstrip()}\n" if old.strip() else "")
    if table is not None and not table.line:
        table = None
    columns = _HEADER if table is None else table.columns
    if missing := [name for name in _HEADER[:3] if name not in columns]:
        raise InputError(
            f"--output has a header without {', '.join(missing)}",
            advice="give another file, or one that begins scenario,layout,step_s,name.",
            file=path,
            line=None if table is None else table.line,
        )
    writer = csv.DictWriter(
        buffer,
        columns,
        delimiter="," if table is None else table.separator,
        lineterminator="\n",
        extrasaction="ignore",
        restval="",
    )
    known = [row.cells for row in table.rows] if table is not None else []
    if table is None:
        writer.writeheader()
    doubled = []
    for row in rows:
        if any(all(one.get(key) in (cell, None) for key, cell in row.cells.items())
               for one in known):  # fmt: skip
            doubled.append(f"{row.name}: the row is in {path} already; not added again")
            continue
        writer.writerow(row.cells)
    return buffer.getvalue(), doubled

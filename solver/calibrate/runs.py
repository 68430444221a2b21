"""Measured runs in a CSV file: each a scenario, a layout, and how fast it was.

Columns: ``scenario`` (path of a scenario file, from the folder of the CSV file), ``layout`` (as
after ``meshplan check --layout``; empty for the scenario's pins), exactly one of ``step_s``,
``tflops_per_gpu`` and ``tokens_per_s_per_gpu``, and, if wanted, ``name`` and ``weight``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from meshplan.constraints.layout import Layout
from meshplan.constraints.problem import Problem
from meshplan.scenarios.checks import listed, nearest
from meshplan.scenarios.errors import InputError, one_line
from meshplan.scenarios.inputs import input_files
from meshplan.scenarios.loader import load
from meshplan.scenarios.schema import Scenario
from meshplan.scenarios.tables import TableRow, read_table
from meshplan.scenarios.yaml_reader import shorten
from meshplan.solver.calibrate.plausible import (
    achieved_tflops,
    beyond_peak,
    far_from_predicted,
)

#: The calibration that ships with meshplan.
DEFAULT = "default"
#: Columns that say how fast a run was; exactly one is filled in.
MEASURES = ("step_s", "tflops_per_gpu", "tokens_per_s_per_gpu")
COLUMNS = ("scenario", "layout", *MEASURES, "name", "weight")
#: More runs than this are no measurements of one cluster, and would take hours.
MOST_RUNS = 1000
#: What to write instead, by column.
_ADVICE = {
    "step_s": "give seconds, not milliseconds, of one optimizer step.",
    "tflops_per_gpu": "give TFLOP/s of one GPU, not of a node.",
    "tokens_per_s_per_gpu": "give tokens per second of one GPU, not of the cluster.",
}
_WEIGHTS = (0.001, 1000.0)


@dataclass(frozen=True, eq=False)
class Run:
    """One measured run.

    Attributes
    ----------
    line
        1-based line of the CSV file.
    name
        What reports call it.
    scenario, stated
        Scenario file and layout as they were written.
    problem, layout
        What they mean; the problem has the calibration that the fit starts from.
    step_s
        Measured seconds per step.
    base_s
        Seconds per step that this calibration predicts.
    measure, measured
        The column that was filled in, and its value.
    weight
        How much the run counts.
    notes
        What was assumed to complete the layout, in sentences.
    """

    line: int
    name: str
    scenario: str
    stated: str
    problem: Problem
    layout: Layout
    step_s: float
    base_s: float
    measure: str = "step_s"
    measured: float = 0.0
    weight: float = 1.0
    notes: tuple[str, ...] = field(default=())

    @property
    def place(self) -> tuple[object, ...]:
        """Model and cluster."""
        cluster = self.problem.cluster
        model = self.problem.model
        return (model.name, model.model_dump_json(), cluster.node_type.name, cluster.domains)

    @property
    def group(self) -> tuple[object, ...]:
        """Model, cluster and layout: runs that share them tell little that is new of each other."""
        return (*self.place, self.layout)

    @property
    def question(self) -> tuple[object, ...]:
        """All of a scenario that decides a step time: layouts of one question can be compared."""
        problem = self.problem
        return (*self.place, problem.seq_len, problem.precision, problem.training)

    @property
    def same(self) -> tuple[object, ...]:
        """All that decides the predicted time: runs that share it are repeats."""
        return (*self.question, self.layout)


def read_runs(path: str | Path, base: str | Path = DEFAULT) -> tuple[Run, ...]:
    """The runs of a CSV file, each checked.

    Parameters
    ----------
    path
        The file.
    base
        Calibration that the fit starts from, whatever the scenarios name: ``default`` or a file.

    Raises
    ------
    InputError
        If the file or a scenario cannot be read, a value is not allowed, or a layout is illegal:
        with file, line, column and value.
    """
    reading = _reading(path, base)
    return tuple(reading.run(row) for row in reading.rows(path))


def files_of_runs(path: str | Path, base: str | Path = DEFAULT) -> dict[str, Path]:
    """Files that the runs of a CSV file rest on, by what names them; nothing is judged yet.

    Raises
    ------
    InputError
        As :func:`read_runs`, if the table or a scenario cannot be read.
    """
    reading = _reading(path, base)
    files: dict[str, Path] = {}
    for row in reading.rows(path):
        scenario = reading.scenario(row.line, row.text("scenario"))
        files |= {f"line {row.line}, {name}": file for name, file in input_files(scenario).items()}
    return files


def _reading(path: str | Path, base: str | Path) -> _Reading:
    name = DEFAULT if str(base) == DEFAULT else str(Path(base).expanduser().absolute())
    return _Reading(str(path), f"calibration={json.dumps(name)}")


class _Reading:
    def __init__(self, file: str, override: str) -> None:
        self.file = file
        self.override = override
        self.scenarios: dict[str, Scenario] = {}
        self.names: dict[str, int] = {}

    def error(self, line: int, message: str, advice: str) -> InputError:
        return InputError(message, advice=advice, file=self.file, line=line)

    # -- the table -----------------------------------------------------------------------------

    def rows(self, path: str | Path) -> tuple[TableRow, ...]:
        """The rows of the table, of which there is one at least; its columns are checked."""
        table = read_table(path, most_rows=MOST_RUNS, whole_rows=False)
        if table.line:
            self._check_columns(table.line, table.columns)
        table.require_rows("add a line for each run, or let `meshplan import runs` write them.")
        return table.rows

    def _check_columns(self, line: int, header: tuple[str, ...]) -> None:
        for name in header:
            near = nearest(name, COLUMNS)
            if name not in COLUMNS and near is not None and near not in header:
                raise self.error(line, f"there is no column {shorten(name)}", f"you meant {near}.")
        if "scenario" not in header:
            raise self.error(
                line,
                f"the header has no column scenario; it begins with {shorten(','.join(header))}",
                "begin the file with the line scenario,layout,step_s.",
            )
        if not any(name in header for name in MEASURES):
            raise self.error(
                line,
                f"the header has none of {', '.join(MEASURES)}",
                "add a column step_s with the measured seconds per step.",
            )

    # -- one run -------------------------------------------------------------------------------

    def run(self, row: TableRow) -> Run:
        from meshplan.solver.check import check

        line, cells = row.line, row.cells
        scenario = self.scenario(line, cells["scenario"])
        measure, measured = self._measure(row)
        stated = cells.get("layout", "")
        try:
            report = check(scenario, stated or None)
        except InputError as error:
            advice = error.advice or "see `meshplan check --help`."
            raise self.error(
                line,
                f"scenario {shorten(cells['scenario'])} with layout {shorten(stated)}: "
                f"{error.message}",
                advice,
            ) from None
        shown = shorten(stated) if stated else "empty (the scenario's pins)"
        if report.violations:
            first = report.violations[0]
            near = [f"{k} = {' or '.join(map(str, v))}" for k, v in first.nearest.items()]
            others = len(report.violations) - 1
            more = f" (and {others} more rules broken)" if others else ""
            raise self.error(
                line,
                f"layout is {shown}, which is illegal: {first.rule}: {first.text}{more}",
                f"the run had {near[0]}."
                if near
                else "the run had another layout, or the scenario is another one: `meshplan check` "
                "says more.",
            )
        if report.cost is None:
            raise self.error(
                line, f"layout is {shown}, which has no step time", "state more of the layout."
            )
        problem, layout = report.problem, report.layout
        step_s = self._step_s(line, problem, layout, measure, measured)
        base_s = report.cost.time.step_us / 1e6
        self._plausible(line, measure, measured, step_s, base_s)
        self._below_peak(line, problem, layout, measure, measured, step_s)
        return Run(
            line=line,
            name=self._name(row),
            scenario=cells["scenario"],
            stated=stated,
            problem=problem,
            layout=layout,
            step_s=step_s,
            base_s=base_s,
            measure=measure,
            measured=measured,
            weight=self._weight(row),
            notes=report.assumed,
        )

    def scenario(self, line: int, name: str) -> Scenario:
        if not name:
            raise self.error(line, "scenario is empty", "give the path of a scenario file.")
        if name not in self.scenarios:
            try:
                path = Path(self.file).parent / Path(name).expanduser()
                self.scenarios[name] = load(path, [self.override])
            except (InputError, ValueError, RuntimeError, OSError) as error:
                raise self._unreadable(line, name, error) from None
        return self.scenarios[name]

    def _unreadable(self, line: int, name: str, error: Exception) -> InputError:
        if isinstance(error, InputError):
            where = f" (line {error.line})" if error.line is not None else ""
            first, _, rest = error.message.partition("\n")
            advice = error.advice or rest.partition("Maybe ")[2].partition("\n")[0]
            return self.error(
                line,
                f"scenario is {shorten(name)}{where}: {first}",
                advice or f"check it: meshplan check {name}",
            )
        return self.error(
            line, f"scenario is {shorten(name)}, which is no possible path", "check the path."
        )

    def _measure(self, row: TableRow) -> tuple[str, float]:
        filled = {name: value for name in MEASURES if (value := row.number(name)) is not None}
        if len(filled) != 1:
            had = "none of them is filled in" if not filled else f"{' and '.join(filled)} are"
            raise row.error(
                f"exactly one of {listed(MEASURES)} must be filled in, but {had}",
                "leave the others empty." if filled else "give the measured seconds as step_s.",
            )
        return filled.popitem()

    def _weight(self, row: TableRow) -> float:
        low, high = _WEIGHTS
        value = row.number("weight")
        if value is not None and not low <= value <= high:
            raise row.error(
                f"weight is {row.text('weight')}, but must be from {low:g} to {high:g}",
                "leave it empty for 1.",
            )
        return 1.0 if value is None else value

    def _name(self, row: TableRow) -> str:
        name = row.text("name") or f"{Path(row.text('scenario')).stem}"
        name = one_line(name)[:80]
        self.names[name] = self.names.get(name, 0) + 1
        return name if self.names[name] == 1 else f"{name} (line {row.line})"

    def _step_s(
        self, line: int, problem: Problem, layout: Layout, measure: str, measured: float
    ) -> float:
        if measure == "step_s":
            return measured
        if measure == "tokens_per_s_per_gpu":
            return layout.gbs * problem.seq_len / problem.gpus / measured
        return achieved_tflops(problem, layout, 1.0) / measured

    def _below_peak(
        self,
        line: int,
        problem: Problem,
        layout: Layout,
        measure: str,
        measured: float,
        step_s: float,
    ) -> None:
        peak = beyond_peak(problem, layout, step_s)
        if peak is None:
            return
        tflops = achieved_tflops(problem, layout, step_s)
        much = "" if measure == "tflops_per_gpu" else f": {tflops:,.0f} model TFLOP/s of one GPU"
        raise self.error(
            line, f"{measure} is {measured:g}{much}, more than {peak}", _ADVICE[measure]
        )

    def _plausible(
        self, line: int, measure: str, measured: float, step_s: float, base_s: float
    ) -> None:
        far = far_from_predicted(step_s, base_s)
        if far is not None:
            raise self.error(
                line, f"{measure} is {measured:g}, {far} than predicted", _ADVICE[measure]
            )


__all__ = ["COLUMNS", "DEFAULT", "MEASURES", "Run", "files_of_runs", "read_runs"]

"""The rows of a sweep as CSV, JSON or Parquet."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from meshplan.scenarios.errors import InputError
from meshplan.solver.extras import need
from meshplan.sweeps.result import Sweep
from meshplan.sweeps.row import COLUMNS

#: Formats by the end of a file's name.
FORMATS = ("csv", "json", "parquet")


def table_format(path: str) -> str:
    """The format that the end of a path stands for.

    Raises
    ------
    InputError
        If it stands for none, or the library that writes it is not installed.
    """
    form = path.lower().rpartition(".")[2]
    if form not in FORMATS:
        raise InputError(
            f"--output is {path!r}, but a table is a .csv, a .parquet or a .json file",
            advice="end its name so.",
        )
    if form == "parquet":
        need("pyarrow", "sweep", "--output with .parquet")
    return form


def table(sweep: Sweep, form: str) -> bytes:
    """The table in one of ``FORMATS``; the same rows make the same bytes."""
    if form == "csv":
        return _csv(sweep).encode()
    if form == "json":
        return (json.dumps(sweep.to_json(), indent=2, allow_nan=False) + "\n").encode()
    return _parquet(sweep)


def _csv(sweep: Sweep) -> str:
    """A field that is empty has no value; lists and mappings stand as JSON."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fields = sweep.fields()
    writer.writerow(fields)
    writer.writerows([_cell(row[field]) for field in fields] for row in sweep.rows)
    return out.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool | list | dict) else value


def _parquet(sweep: Sweep) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {int: pa.int64(), float: pa.float64(), str: pa.string(), bool: pa.bool_()}
    columns, fields = [], []
    for field in sweep.fields():
        values = [row[field] for row in sweep.rows]
        kind = COLUMNS.get(field) or _kind(values)
        if field not in COLUMNS and kind is str:
            values = [one if one is None or isinstance(one, str) else _cell(one) for one in values]
            values = [one if one is None else str(one) for one in values]
        fields.append(pa.field(field, types[kind]))
        columns.append(pa.array(values, types[kind]))
    out = io.BytesIO()
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), out)
    return out.getvalue()


def _kind(values: list[Any]) -> type:
    """The type of a column of swept values: text where they are not of one kind."""
    kinds = {type(value) for value in values if value is not None}
    if kinds and kinds <= {int, float}:
        return float if float in kinds else int
    return bool if kinds == {bool} else str


__all__ = ["FORMATS", "table", "table_format"]

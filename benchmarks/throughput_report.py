"""What the comparison of the step-time model with published runs prints and writes."""

from __future__ import annotations

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.throughput_fit import FITTED, Outcome
from benchmarks.throughput_scenario import Case

LONG = 1 << 14
#: Pairs are counted if their figures differ by more than this, in percent.
PAIR_GAPS = (3, 10)
WORST = 25


@dataclass(frozen=True)
class Row:
    """A row with the model's figure by the shipped parameters, or the reason to leave it out."""

    id: str
    model: str
    gpu: str
    gpus: int | None
    precision: str
    release: str
    layout: str
    measured: float = 0.0
    predicted: float = 0.0
    seq_len: int = 0
    hybrid: bool = False
    apart: str = ""
    doubt: str = ""
    reason: str = ""
    flags: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Whether the headline counts the row."""
        return not (self.reason or self.apart or self.doubt)

    @property
    def error(self) -> float:
        """Error of the throughput in percent; positive if the model is too fast."""
        return 100 * (self.predicted / self.measured - 1)


@dataclass(frozen=True)
class Pair:
    """Two rows of one model, on the same GPUs: measured and predicted ratio of the throughputs."""

    rows: tuple[str, str]
    measured: float
    predicted: float
    layouts: bool

    @property
    def gap(self) -> float:
        """How much faster the faster one is, in percent."""
        return 100 * (max(self.measured, 1 / self.measured) - 1)

    @property
    def right(self) -> bool:
        """Whether the model says the same one is faster; a tie is wrong."""
        return (self.measured - 1) * (self.predicted - 1) > 0


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Count, MAPE, median, 90th percentile and bias, of errors in percent."""
    if not errors:
        return {"n": 0}
    size = sorted(abs(error) for error in errors)
    return {
        "n": len(errors),
        "mape": statistics.fmean(size),
        "median": statistics.median(size),
        "p90": size[math.ceil(0.9 * len(size)) - 1],
        "bias": statistics.fmean(errors),
    }


def baseline(cases: Sequence[Case], *, layouts: bool) -> dict[int, float]:
    """Mean TFLOP/s of the other rows of a model, GPU and precision; rows without others are absent.

    With ``layouts`` the rows that share the layout are left out as well.  Rows in doubt do not
    take part.
    """
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        if not case.doubt:
            groups[case.model, case.gpu, case.problem.precision].append(i)
    found = {}
    for members in groups.values():
        for i in members:
            others = [
                cases[j].tflops
                for j in members
                if j != i
                and not (
                    layouts
                    and (cases[j].place, cases[j].degrees) == (cases[i].place, cases[i].degrees)
                )
            ]
            if others:
                found[i] = statistics.fmean(others)
    return found


def errors_of(
    cases: Sequence[Case],
    predicted: Mapping[int, float],
    *,
    doubtful: bool = False,
    least_seq_len: int = 0,
) -> list[float]:
    """Errors in percent of predictions by the index of the case; rows in doubt if asked for."""
    return [
        100 * (value / cases[i].tflops - 1)
        for i, value in predicted.items()
        if (doubtful or not cases[i].doubt) and cases[i].problem.seq_len >= least_seq_len
    ]


def pairs(
    cases: Sequence[Case],
    predicted: Mapping[int, float],
    *,
    precision: bool,
    doubtful: bool = False,
) -> list[Pair]:
    """All pairs on the same model, GPUs, length and release (and precision)."""
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        if i in predicted and (doubtful or not case.doubt):
            release = case.measured.run.release or case.measured.run.source
            kind = case.problem.precision if precision else ""
            groups[(*case.place, release, kind)].append(i)
    return [
        Pair(
            (cases[i].id, cases[j].id),
            cases[i].tflops / cases[j].tflops,
            predicted[i] / predicted[j],
            cases[i].problem.precision == cases[j].problem.precision,
        )
        for members in groups.values()
        for n, i in enumerate(members)
        for j in members[n + 1 :]
    ]


def held_out(outcomes: Sequence[Outcome], family: str) -> dict[int, float]:
    """Mean (of logarithms) of a row's predictions over the splits that held it out."""
    values: dict[int, list[float]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.split.family == family:
            for i, value in outcome.predicted.items():
                values[i].append(value)
    return {i: math.exp(statistics.fmean(map(math.log, found))) for i, found in values.items()}


# -- text ----------------------------------------------------------------------------------------


def report(
    rows: Sequence[Row],
    cases: Sequence[Case],
    default: Mapping[int, float],
    outcomes: Sequence[Outcome],
    series: Sequence[str],
) -> str:
    """Everything, as text; ``cases`` are all rows but those apart, with their predictions."""
    lines = _table(rows) + _left_out(rows) + _groups(rows)
    lines += _comparison(cases, default, outcomes)
    for outcome in outcomes:
        if outcome.split.family == "all rows":
            lines += _parameters(outcomes)
            break
    lines += [*_pairs(cases, default, outcomes), "", *series, *_worst(rows, cases, outcomes)]
    apart = sum(bool(row.apart) for row in rows)
    left = sum(bool(row.reason) for row in rows)
    doubt = sum(bool(case.doubt) for case in cases)
    lines += [
        "",
        f"{len(rows)} rows: {len(cases) - doubt} counted, {doubt} in doubt, {apart} set apart, "
        f"{left} left out",
    ]
    return "\n".join(lines)


def _name(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _table(rows: Sequence[Row]) -> list[str]:
    lines = [f"{'row':58}{'layout':46}{'model':>7}{'measured':>9}{'error':>8}  remarks"]
    for row in rows:
        if row.reason:
            continue
        flags = "; ".join(f for f in row.flags if not f.startswith(("gradient_dtype", "cross_ent",
                          "moment_dtype", "fp8_param")))  # fmt: skip
        note = f"[apart: {row.apart}] " if row.apart else ""
        note += f"[in doubt: {row.doubt}] " if row.doubt else ""
        lines.append(
            f"{_name(row.id, 57):58}{_name(row.layout, 45):46}{row.predicted:7.0f}"
            f"{row.measured:9.0f}{row.error:+7.1f}%  {note}{flags}".rstrip()
        )
    return lines


def _left_out(rows: Sequence[Row]) -> list[str]:
    left = [row for row in rows if row.reason]
    lines = ["", "left out"] if left else []
    return lines + [f"{_name(row.id, 65):66}{row.reason}" for row in left]


_HEAD = f"{'n':>5}{'MAPE':>8}{'median':>8}{'P90':>8}{'bias':>8}"


def _sum_line(name: str, errors: Sequence[float]) -> str:
    sums = summary(errors)
    if not errors:
        return f"{_name(name, 47):48}    0"
    return (
        f"{_name(name, 47):48}{sums['n']:5.0f}{sums['mape']:8.1f}{sums['median']:8.1f}"
        f"{sums['p90']:8.1f}{sums['bias']:+8.1f}"
    )


_GROUPS: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("by model", lambda row: row.model),
    ("by GPU type", lambda row: row.gpu),
    ("by precision", lambda row: row.precision),
    ("by release", lambda row: row.release),
)


def _groups(rows: Sequence[Row]) -> list[str]:
    known = [row for row in rows if not row.reason]
    counted = [row for row in known if row.counts]
    lines = ["", f"{'shipped parameters, errors in percent':48}{_HEAD}"]
    for name, chosen in (
        ("all counted rows", counted),
        ("  without linear attention", [row for row in counted if not row.hybrid]),
        ("  linear attention (a wider band, or none)", [row for row in counted if row.hybrid]),
        ("  long context (16K or more)", [row for row in counted if row.seq_len >= LONG]),
        ("rows in doubt", [row for row in known if row.doubt and not row.apart]),
        ("counted rows and those in doubt", [row for row in known if not row.apart]),
        ("rows set apart", [row for row in known if row.apart]),
    ):
        lines.append(_sum_line(name, [row.error for row in chosen]))
    for title, key in _GROUPS:
        lines += ["", f"{title:48}{_HEAD}"]
        for value in sorted({key(row) for row in counted}):
            lines.append(_sum_line(value, [row.error for row in counted if key(row) == value]))
    return lines


def _comparison(
    cases: Sequence[Case], default: Mapping[int, float], outcomes: Sequence[Outcome]
) -> list[str]:
    lines = ["", f"{'held-out rows, errors in percent':48}{_HEAD}"]
    for family in ("all rows", "layouts", "model", "GPU type"):
        chosen = [one for one in outcomes if one.split.family == family]
        if not chosen:
            continue
        errors = [e for one in chosen for e in errors_of(cases, one.predicted)]
        label = {"all rows": "fitted on all rows (in sample)"}.get(family, f"{family} left out")
        lines.append(_sum_line(label, errors))
        if family == "layouts":
            each = [summary(errors_of(cases, one.predicted)).get("mape", 0.0) for one in chosen]
            lines[-1] += f"   spread over seeds {statistics.pstdev(each):.1f}"
        if family in ("model", "GPU type"):
            lines += [
                _sum_line(f"  {one.split.name}", errors_of(cases, one.predicted)) for one in chosen
            ]
        for label, ask in (
            ("  of these long context (16K or more)", {"least_seq_len": LONG}),
            ("  with rows in doubt put back", {"doubtful": True}),
        ):
            found = [e for one in chosen for e in errors_of(cases, one.predicted, **ask)]
            lines.append(_sum_line(label, found))
    lines += ["", f"{'against a trivial baseline, on the same rows':48}{_HEAD}"]
    for layouts in (False, True):
        plain = baseline(cases, layouts=layouts)
        note = "row and its layout left out" if layouts else "row left out"
        lines.append(_sum_line(f"mean of model, GPU, precision; {note}", errors_of(cases, plain)))
        for name, predicted in (
            ("shipped parameters", default),
            ("layouts left out", held_out(outcomes, "layouts")),
            ("model left out", held_out(outcomes, "model")),
        ):
            same = {i: value for i, value in predicted.items() if i in plain}
            if same:
                lines.append(_sum_line(f"  this model, {name}", errors_of(cases, same)))
    return lines


def _parameters(outcomes: Sequence[Outcome]) -> list[str]:
    whole = next(one for one in outcomes if one.split.family == "all rows")
    halves = [one for one in outcomes if one.split.family == "layouts"]
    lines = ["", f"{'fitted parameter':24}{'all rows':>10}{'halves':>10}{'spread':>8}"]
    for name in FITTED:
        values = [one.parameters[name] for one in halves]
        lines.append(
            f"{name:24}{whole.parameters[name]:10.3f}{statistics.fmean(values):10.3f}"
            f"{statistics.pstdev(values):8.3f}"
        )
    return lines


def _pairs(
    cases: Sequence[Case], default: Mapping[int, float], outcomes: Sequence[Outcome]
) -> list[str]:
    lines = ["", "pairs of one model, GPUs, length and release: sign of the difference right"]
    for precision in (False, True):
        for name, predicted in (
            ("shipped parameters", default),
            ("model left out", held_out(outcomes, "model")),
            ("layouts left out", held_out(outcomes, "layouts")),
        ):
            found = pairs(cases, predicted, precision=precision)
            for gap in PAIR_GAPS:
                chosen = [pair for pair in found if pair.gap > gap]
                if not chosen:
                    continue
                right = sum(pair.right for pair in chosen)
                kind = "same precision" if precision else "any precision"
                lines.append(
                    f"  {kind}, {name}, over {gap} %: {right} of {len(chosen)} "
                    f"({100 * right / len(chosen):.0f} %)"
                )
    wrong = [p for p in pairs(cases, default, precision=False) if p.gap > 3 and not p.right]
    lines += ["", "wrong pairs (shipped parameters): measured and predicted ratio"] if wrong else []
    lines += [
        f"  {pair.rows[0]} : {pair.rows[1]}  {pair.measured:.2f}  {pair.predicted:.2f}"
        for pair in sorted(wrong, key=lambda pair: -pair.gap)
    ]
    return lines


def _worst(rows: Sequence[Row], cases: Sequence[Case], outcomes: Sequence[Outcome]) -> list[str]:
    # The cases are these rows, in their order; names may stand twice, as in two files.
    judged = [row for row in rows if not (row.reason or row.apart)]
    predicted = held_out(outcomes, "layouts") or {i: row.predicted for i, row in enumerate(judged)}
    errors = {i: 100 * (value / cases[i].tflops - 1) for i, value in predicted.items()}
    lines = ["", f"the {WORST} worst rows (held-out prediction; shipped parameters; ? in doubt)"]
    for i in sorted(errors, key=lambda i: -abs(errors[i]))[:WORST]:
        row = judged[i]
        mark = "?" if row.doubt else " "
        figures = f"{errors[i]:+7.1f}%{row.error:+7.1f}%"
        lines.append(f"{mark} {_name(row.id, 55):56}{figures}  {row.layout}")
    return lines


# -- files ---------------------------------------------------------------------------------------


def as_json(
    rows: Sequence[Row],
    cases: Sequence[Case],
    default: Mapping[int, float],
    outcomes: Sequence[Outcome],
) -> str:
    """All rows and sums."""
    counted = [row for row in rows if row.counts]
    families = ("all rows", "layouts", "model", "GPU type")
    found = pairs(cases, default, precision=False)
    data = {
        "rows": [{**row.__dict__, "error": None if row.reason else row.error} for row in rows],
        "summary": {
            "shipped": summary([row.error for row in counted]),
            "long context": summary([r.error for r in counted if r.seq_len >= LONG]),
            **{family: summary(_family_errors(cases, outcomes, family)) for family in families},
            "baseline": summary(errors_of(cases, baseline(cases, layouts=False))),
        },
        "pairs": {
            str(gap): {
                "n": sum(pair.gap > gap for pair in found),
                "right": sum(pair.right for pair in found if pair.gap > gap),
            }
            for gap in PAIR_GAPS
        },
        "parameters": {f"{one.split.family}: {one.split.name}": one.parameters for one in outcomes},
    }
    return json.dumps(data, indent=1) + "\n"


def _family_errors(cases: Sequence[Case], outcomes: Iterable[Outcome], family: str) -> list[float]:
    chosen = [one for one in outcomes if one.split.family == family]
    return [error for one in chosen for error in errors_of(cases, one.predicted)]

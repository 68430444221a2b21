"""Do we count FLOPs as published runs do?  Prints comparisons, sums, exceptions and what is left.

The model FLOPs of one token that a published run implies are its TFLOP/s over its tokens/s, both
per GPU; where a row has no tokens/s, batch and step time give them.  They are compared with
:func:`meshplan.scenarios.flops.flops_per_token` of the model card::

    python benchmarks/flops_accuracy.py [--json PATH] [--all] [FILE ...]

FILE defaults to ``benchmarks/data/published_runs.csv``; any file with its columns will do.  The aim
is an error within 2 % in 98 % of the comparable rows.

A row is counted as its release counted: GPT-OSS before 26.06 with windows as full attention and
the GLU as two matrices, and releases up to 25.04 with the whole attention matrix.  The column of
flags may correct tokens/s or the vocabulary.  LoRA of Llama 3 70B on SQuAD counts two thirds of
the linears (``flop_utils.py`` of Megatron-Bridge); its packed sequences are short, so that
attention is left out.

Rows are left out by what they state, never by their error: without tokens/s or sequence length,
approximate figures, models that no card holds, runs with images, other LoRA runs, and
fine-tuning on packed real data, where attention counts over lengths that no row states, and MTP
layers may be fewer.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.command_line import Results, dumps, exit_code, json_option  # noqa: E402
from benchmarks.memory_models import model_of  # noqa: E402
from benchmarks.memory_words import Unusable  # noqa: E402
from meshplan.scenarios.cards import load_card  # noqa: E402
from meshplan.scenarios.flops import flops_per_token, otherwise_counted  # noqa: E402
from meshplan.scenarios.model_card import MOST_MTP_LAYERS, ModelCard  # noqa: E402
from meshplan.scenarios.tables import TableRow, read_table  # noqa: E402

DATA = ROOT / "benchmarks" / "data" / "published_runs.csv"
#: The aim: an error of at most so many percent in this share of the rows.
WITHIN, SHARE = 2.0, 0.98
#: Releases as (year, month): the last that counted the whole matrix; the first of today's count.
_WHOLE_MATRIX, _TODAY = (25, 4), (26, 6)
COLUMNS = (
    "row_id", "release", "phase", "model", "num_gpus", "gbs", "seq_len", "tokens_per_s_per_gpu",
    "model_tflops_per_gpu", "step_time_ms", "approx", "mtp", "data", "tokens_rounding_pct",
    "rcp_mtp_layers", "flags", "notes",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """One row: our FLOPs per token next to the published, or why they are not compared.

    Attributes
    ----------
    reason
        Why the row is left out; empty if it is compared.
    rounding
        Percent by which rounding of the row's tokens/s and TFLOP/s can move the published figure.
    remark
        How the row was counted or read, and what its flags say.
    """

    id: str
    model: str
    release: str
    seq_len: int | None
    ours_gflop: float | None = None
    published_gflop: float | None = None
    reason: str = ""
    rounding: float = 0.0
    remark: str = ""

    @property
    def error(self) -> float | None:
        """Error in percent; positive if we count more."""
        if self.ours_gflop is None or self.published_gflop is None:
            return None
        return 100 * (self.ours_gflop / self.published_gflop - 1)

    @property
    def is_within(self) -> bool:
        """Whether the error is within the aim."""
        return self.error is not None and abs(self.error) <= WITHIN


def read_rows(path: Path) -> tuple[TableRow, ...]:
    """Rows of a file of published runs.

    Raises
    ------
    InputError
        If it cannot be read, lacks a column, or a row has too few or too many cells.
    """
    table = read_table(path)
    table.require(COLUMNS, "benchmarks/data/published_runs.csv")
    return table.rows


def compare(row: TableRow) -> Comparison:
    """Our count and the published one; rows left out have both, too, where they can be had."""
    seq_len, phase = row.whole("seq_len"), row.text("phase").lower()
    published, rounding, remark = _published(row)
    reasons = _reasons(row, published, seq_len)
    ours = None
    try:
        card = _card(row)
        if seq_len:
            ours, how = _ours(row, card, seq_len, _is_squad_lora(row, phase))
            remark = "; ".join(part for part in (how, remark) if part)
    except Unusable as unusable:
        reasons = [str(unusable), *reasons]
    return Comparison(
        id=row.text("row_id"),
        model=row.text("model"),
        release=row.text("release"),
        seq_len=seq_len,
        ours_gflop=None if ours is None else ours / 1e9,
        published_gflop=None if published is None else published / 1e9,
        reason=reasons[0] if reasons else "",
        rounding=rounding,
        remark=remark,
    )


def _published(row: TableRow) -> tuple[float | None, float, str]:
    """FLOPs per token that the row implies, their rounding in percent, and how they were read."""
    tflops, tokens = row.number("model_tflops_per_gpu"), row.number("tokens_per_s_per_gpu")
    flags, remark = row.text("flags"), ""
    rounding = row.number("tokens_rounding_pct") or (50 / tokens if tokens else 0.0)
    if tokens and (found := re.search(r"tokens/s is .*correct = (\d+(?:\.\d+)?)", flags)):
        tokens, remark = float(found[1]), "tokens/s corrected by the row's flag"
    figures = (row.number("step_time_ms"), row.whole("gbs"), row.whole("num_gpus"))
    step_ms, batch, gpus = figures
    seq_len = row.whole("seq_len")
    if tokens is None and step_ms and batch and gpus and seq_len:
        tokens, remark = batch * seq_len / (step_ms / 1e3) / gpus, "tokens/s from the step time"
    if tflops is None or tokens is None:
        return None, 0.0, ""
    digits = len(row.text("model_tflops_per_gpu").partition(".")[2])
    return tflops * 1e12 / tokens, rounding + 50 * 10**-digits / tflops, remark


def _reasons(row: TableRow, published: float | None, seq_len: int | None) -> list[str]:
    """Why a row is not comparable, by what it states."""
    phase, data, notes = (row.text(name).lower() for name in ("phase", "data", "notes"))
    tuned = phase in ("sft", "lora", "peft", "dpo")
    checks = (
        (published is None, "no tokens/s, or no TFLOP/s"),
        (seq_len is None, "sequence length not stated"),
        (row.text("approx") == "1", "approximate figures"),
        ("vision" in notes or "vlm" in phase, "images: the vision tower counts, too"),
        (
            tuned and (data == "real" or "packed short sequences" in row.text("flags")),
            "packed real data: the lengths that attention counts over are not stated, nor MTP",
        ),
        (
            phase in ("lora", "peft") and not _is_squad_lora(row, phase),
            "LoRA that is not counted by the rule of Llama 3 70B on SQuAD",
        ),
        (
            row.text("model").startswith("gpt_oss") and _release(row) is None,
            "release not stated, and GPT-OSS was counted in two ways",
        ),
    )
    return [reason for holds, reason in checks if holds]


def _is_squad_lora(row: TableRow, phase: str) -> bool:
    is_model = bool(re.fullmatch(r"llama3_?70b", row.text("model").replace("-", "_")))
    return phase in ("lora", "peft") and is_model and row.text("data").lower() in ("", "squad")


def _release(row: TableRow) -> tuple[int, int] | None:
    found = re.match(r"(\d\d)\.(\d\d)", row.text("release"))
    return (int(found[1]), int(found[2])) if found else None


def _card(row: TableRow) -> ModelCard:
    """The model card of the row, with the MTP layers and the vocabulary that it states."""
    try:
        reference = dict(model_of(row.text("model")).reference)
    except Unusable as reason:
        unknown = "unknown" in str(reason)
        raise Unusable(f"no model card: {row.text('model')}" if unknown else str(reason)) from None
    name = reference.pop("card", None)
    column = "mtp" if row.text("mtp") else "rcp_mtp_layers"
    mtp = row.whole(column, 0, MOST_MTP_LAYERS)
    if mtp is not None:
        reference |= {"mtp_layers": mtp} | ({} if mtp else {"mtp_repeated": False})
    if found := re.search(r"tokenizer vocabulary \((\d+)\)", row.text("flags")):
        reference["vocab"] = int(found[1])
    if name is None:
        return ModelCard.model_validate(reference)
    base = load_card(name).model_dump(exclude={"published", "sources"}, exclude_unset=True)
    return ModelCard.model_validate(base | reference)


def _ours(row: TableRow, card: ModelCard, seq_len: int, squad_lora: bool) -> tuple[float, str]:
    """Our count in the way of the row's release, and that way in words if it is not today's."""
    release = _release(row)
    flops = flops_per_token(card, seq_len)
    if squad_lora:
        return (flops.total - flops.attention_core) * 2 / 3, "LoRA on SQuAD: 2/3 of the linears"
    if release is not None and release <= _WHOLE_MATRIX:
        return otherwise_counted(card, seq_len, "whole_matrix").total, "whole matrix"
    if release is not None and release < _TODAY:
        older = otherwise_counted(card, seq_len, "before_26_06").total
        return older, "counted as before 26.06" if older != flops.total else ""
    return flops.total, ""


# -- report --------------------------------------------------------------------------------------


def exception_reason(one: Comparison, flags: str) -> str:
    """Why a comparable row is off, by its rounding or its flags."""
    if one.error is not None and abs(one.error) <= one.rounding:
        return f"tokens/s and TFLOP/s are rounded by up to {one.rounding:.1f} %"
    return flags or "not explained"


def summary(rows: Sequence[Comparison]) -> dict[str, float]:
    """Counts of rows, and the shares of comparable ones within 0.1 %, 1 % and the aim."""
    errors = [abs(one.error) for one in rows if not one.reason and one.error is not None]
    shares = {f"within_{limit:g}": sum(e <= limit for e in errors) for limit in (0.1, 1, WITHIN)}
    left = [one for one in rows if one.reason]
    return {
        "rows": len(rows),
        "comparable": len(errors),
        **shares,
        "share": shares[f"within_{WITHIN:g}"] / len(errors) if errors else 0.0,
        "left_out": len(left),
        "left_out_with_figures": sum(one.error is not None for one in left),
        "left_out_within": sum(one.is_within for one in left),
    }


def report(rows: Sequence[Comparison], flags: Mapping[str, str], everything: bool = False) -> str:
    """Sums by model, exceptions with reasons, rows left out with reasons, and the outcome."""
    compared = [one for one in rows if not one.reason]
    lines = [f"{'model':34}{'rows':>5}{'<=0.1%':>8}{'<=1%':>6}{'<=2%':>6}{'worst':>8}"]
    for model, count in sorted(Counter(one.model for one in compared).items()):
        errors = [one.error for one in compared if one.model == model and one.error is not None]
        within = [sum(abs(error) <= limit for error in errors) for limit in (0.1, 1, WITHIN)]
        worst = max(errors, key=abs)
        lines.append(
            f"{model[:33]:34}{count:5}{within[0]:8}{within[1]:6}{within[2]:6}{worst:+7.2f}%"
        )
    if everything:
        lines += ["", "comparable", *(_line(one) for one in compared)]
    lines += ["", f"comparable rows that are off by more than {WITHIN:g} %"]
    off = [one for one in compared if not one.is_within]
    lines += [_line(one, exception_reason(one, flags.get(one.id, ""))) for one in off] or ["none"]
    lines += ["", "left out"]
    reasons = Counter(one.reason for one in rows if one.reason)
    for reason, count in reasons.most_common():
        lines.append(f"{count:4}  {reason}")
        lines += [f"      {_line(one)}" for one in rows
                  if one.reason == reason and (everything or one.error is not None)]  # fmt: skip
    sums = summary(rows)
    lines += [
        "",
        f"{sums['rows']} rows, {sums['comparable']} comparable, {sums['left_out']} left out "
        f"(of these {sums['left_out_with_figures']} with both figures, "
        f"{sums['left_out_within']} within {WITHIN:g} %)",
        f"within 0.1 %: {sums['within_0.1']}, 1 %: {sums['within_1']}, {WITHIN:g} %: "
        f"{sums['within_2']} of {sums['comparable']} = {sums['share']:.1%} "
        f"(aim {SHARE:.0%}: {'met' if sums['share'] >= SHARE else 'MISSED'})",
    ]
    return "\n".join(lines)


def _line(one: Comparison, why: str = "") -> str:
    figures = [
        "-" if value is None else f"{value:.2f}" for value in (one.ours_gflop, one.published_gflop)
    ]
    error = "" if one.error is None else f"{one.error:+.2f}%"
    text = f"{one.id[-56:]:57}{one.seq_len or '-':>7}{figures[0]:>9}{figures[1]:>9}{error:>9}"
    tail = "; ".join(part for part in (why, one.remark) if part)
    return f"{text}  {tail}".rstrip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare files of runs; exit code 1 if the aim is missed, 2 if one cannot be read."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="*", type=Path, default=[DATA], metavar="FILE")
    json_option(parser, "all rows")
    parser.add_argument("--all", action="store_true", help="print rows that agree, too")
    options = parser.parse_args(arguments)
    return exit_code(lambda: _compare(options))


def _compare(options: argparse.Namespace) -> int:
    results = Results({"--json": options.json}, options.file)
    cells = [row for path in options.file for row in read_rows(path)]
    rows = [compare(row) for row in cells]
    sums = summary(rows)
    with results.printing():
        print(report(rows, _flags(cells), options.all))
    found = [asdict(one) | {"error": one.error} for one in rows]
    results.deliver("--json", lambda: dumps({"summary": sums, "rows": found}))
    return 1 if sums["comparable"] and sums["share"] < SHARE else 0


def _flags(cells: Iterable[TableRow]) -> dict[str, str]:
    return {row.text("row_id"): row.text("flags") for row in cells}


if __name__ == "__main__":
    sys.exit(main())

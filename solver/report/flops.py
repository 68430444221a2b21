"""FLOPs of one model at several sequence lengths, for people and tools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from meshplan.scenarios import (
    InputError,
    ModelCard,
    Scenario,
    card_names,
    input_files,
    load,
    load_card,
    resolve_model,
)
from meshplan.scenarios.cards import card_file
from meshplan.scenarios.checks import shown
from meshplan.scenarios.flops import (
    COUNTINGS,
    FlopsBreakdown,
    flash_backward_flops,
    flops_per_token,
    full_recompute_flops,
    mtp_flops_per_token,
    otherwise_counted,
)
from meshplan.scenarios.parameters import active_parameters, mtp_parameters, total_parameters
from meshplan.solver.report.data import RESULT_VERSION

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

#: Longest sequence, as in a scenario.
LONGEST = 16_777_216
_FILES = (".yaml", ".yml", ".json")
_PART_WORDS = {
    "attention_projections": "attention projections",
    "attention_core": "attention core",
    "linear_attention": "linear attention",
    "dense_mlp": "dense MLP",
    "routed_experts": "routed experts",
    "shared_experts": "shared experts",
    "mtp_merge": "MTP merge",
    "logits": "logits",
}
_COUNTING_WORDS = {
    "before_26_06": "before Bridge 26.06",
    "whole_matrix": "whole matrix",
}
_EXECUTED_WORDS = {"flash_backward": "flash backward", "full_recompute": "full recompute"}
_LEGEND = (
    "Forward and backward, two FLOPs a multiply-add, half of the causal attention matrix. Counted "
    "otherwise: Megatron-Bridge before 26.06 (a window as full attention, a GLU other than SwiGLU "
    "as two matrices), NeMo up to 25.04 (the whole matrix). Executed besides, and in no published "
    "figure: scores once more in the backward of flash attention; all layers forward again in full "
    "recompute."
)
#: Columns of a report in a file or pipe, of its labels, and of one length beside them.
_WIDTH, _LABEL, _LENGTH = 100, 23, 19


@dataclass(frozen=True)
class FlopsReport:
    """FLOPs of a model by part, for each of several sequence lengths.

    Attributes
    ----------
    card
        The model.
    seq_lens
        Tokens in a sequence; each once, in the order given.
    notes
        What was assumed when the model was read, in sentences.
    """

    card: ModelCard
    seq_lens: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def status(self) -> Literal["ok"]:
        """``ok``: whatever can go wrong is bad input."""
        return "ok"

    @property
    def parts(self) -> dict[int, FlopsBreakdown]:
        """FLOPs of one token by part, by sequence length."""
        return {seq_len: flops_per_token(self.card, seq_len) for seq_len in self.seq_lens}

    def to_json(self) -> dict[str, Any]:
        """The report as plain data (``docs/cli.md``)."""
        card = self.card
        return {
            "meshplan_result": RESULT_VERSION,
            "name": card.name,
            "status": self.status,
            "parameters": {
                "total": total_parameters(card),
                "active": active_parameters(card),
                "mtp": card.mtp_copies * mtp_parameters(card).total,
            },
            "flops": [_length_data(card, *each) for each in self.parts.items()],
            "notes": list(self.notes),
        }

    def render(self, console: Console) -> None:
        """Print the report on a rich console."""
        width = min(console.width, _WIDTH)
        for index, section in enumerate(flops_sections(self.to_json(), width)):
            if index:
                console.print()
            console.print(section, width=width, highlight=False)

    def __str__(self) -> str:
        import io

        from rich.console import Console

        console = Console(file=io.StringIO(), width=_WIDTH, color_system=None, legacy_windows=False)
        with console.capture() as captured:
            self.render(console)
        return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"

    def _repr_html_(self) -> str:
        import io

        from rich.console import Console

        console = Console(file=io.StringIO(), width=_WIDTH, record=True, force_jupyter=False)
        self.render(console)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def flops(
    model: ModelCard | Scenario | str | Path, seq_lens: Iterable[int] | int = ()
) -> FlopsReport:
    """FLOPs of the training of one token and one sequence, as published figures count them.

    Parameters
    ----------
    model
        A model card or its name, a scenario or the path of its file, or the path of a Hugging
        Face ``config.json``.
    seq_lens
        Sequence lengths in tokens; may be left out where a scenario has one.

    Raises
    ------
    InputError
        If the model cannot be found or read, or a length is missing or out of range.
    """
    card, own_length, notes = _found(model)
    asked = (seq_lens,) if isinstance(seq_lens, int) else tuple(seq_lens)
    given = tuple(_checked_length(seq_len) for seq_len in asked)
    lengths = given or (() if own_length is None else (own_length,))
    if not lengths:
        raise InputError(
            f"the model {card.name} has no sequence length of its own, and none is given",
            advice="add --seq 4096; repeat it to compare several.",
        )
    return FlopsReport(card, tuple(dict.fromkeys(lengths)), notes)


def _checked_length(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LONGEST:
        return value
    raise InputError(
        f"the sequence length is {shown(value)}, but must be an integer from 1 to {LONGEST}",
        advice="give the tokens of one sequence, for example 4096.",
    )


def _found(model: object) -> tuple[ModelCard, int | None, tuple[str, ...]]:
    """The card, the sequence length of the scenario if it is one, and notes."""
    if isinstance(model, ModelCard):
        return model, None, ()
    if isinstance(model, Scenario):
        return resolve_model(model), model.workload.seq_len, ()
    if not isinstance(model, str | Path):
        raise InputError(
            f"model is a {type(model).__name__}, but must be a model card, a scenario, or a name",
            advice="give the name of a card; see `meshplan models`.",
        )
    name = str(model)
    if name in card_names():
        return load_card(name), None, ()
    if _is_huggingface(name):
        return _huggingface(name)
    if name.endswith(_FILES) or _is_file(name):
        return _found(load(name))
    try:
        return load_card(name), None, ()
    except InputError as error:
        raise InputError(
            f"MODEL is {shown(name)}, which is neither a model card nor a file", advice=error.advice
        ) from None


def files_of(model: str) -> dict[str, str | Path]:
    """The files that :func:`flops` reads for a model, by what names them."""
    if (card := card_file(model)) is not None:
        return {"the model card": card}
    if _is_huggingface(model):
        return {"MODEL": model}
    return {**input_files(load(model))}


def _is_huggingface(name: str) -> bool:
    return name == "-" or name.endswith(".json")


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long, or a NUL in it
        return False


def _huggingface(name: str) -> tuple[ModelCard, int | None, tuple[str, ...]]:
    """The card of a ``config.json``; refuses one that a card holds only in part."""
    from meshplan.scenarios.importers import import_model

    imported = import_model(name)
    if imported.approximations:
        raise InputError(
            f"a model card holds this model only in part: {'; '.join(imported.approximations)}",
            advice="take the card that `meshplan import model` prints, if that is near enough.",
            file=name,
        )
    return imported.card, None, imported.notes


# -- data --------------------------------------------------------------------------------------


def _length_data(card: ModelCard, seq_len: int, counted: FlopsBreakdown) -> dict[str, Any]:
    total = counted.total
    return {
        "seq_len": seq_len,
        "per_token": round(total),
        "per_sequence": round(total * seq_len),
        "mtp_per_token": round(mtp_flops_per_token(card, seq_len).total),
        "parts": {part: round(value) for part, value in counted.as_dict().items()},
        "shares": {part: round(value / total, 6) for part, value in counted.as_dict().items()},
        "otherwise_counted": {
            counting: round(otherwise_counted(card, seq_len, counting).total)
            for counting in COUNTINGS
        },
        "not_counted": _not_counted(counted),
    }


def _not_counted(counted: FlopsBreakdown) -> dict[str, int]:
    return {
        "flash_backward": round(flash_backward_flops(counted)),
        "full_recompute": round(full_recompute_flops(counted)),
    }


# -- text --------------------------------------------------------------------------------------


def flops_sections(data: dict[str, Any], width: int) -> Iterator[RenderableType]:
    """What the model is, its FLOPs by part, other ways of counting, what is executed besides."""
    from rich.padding import Padding
    from rich.text import Text

    yield _head(data)
    columns = max(1, (width - _LABEL) // _LENGTH)
    for start in range(0, len(data["flops"]), columns):
        yield _table(data["flops"][start : start + columns])
    yield Text(_LEGEND, style="dim")
    if data["notes"]:
        yield Text("Assumed", style="bold")
        for note in data["notes"]:
            yield Padding(Text(note), (0, 0, 0, 2))


def _head(data: dict[str, Any]) -> Text:
    from rich.text import Text

    sizes = data["parameters"]
    mtp = f", MTP layers {sizes['mtp'] / 1e9:.2f} B more" if sizes["mtp"] else ""
    text = Text(data["name"], style="bold")
    text.append(
        f": {sizes['total'] / 1e9:.2f} B parameters, {sizes['active'] / 1e9:.2f} B active{mtp}",
        style="not bold",
    )
    return text


def _table(lengths: Sequence[dict[str, Any]]) -> Table:
    """One pair of columns a length: FLOPs, and their share of what counts."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(min_width=_LABEL - 2)
    for _ in lengths:
        table.add_column(justify="right")
        table.add_column(justify="right")
    for label, cells, style in _rows(lengths):
        texts = [Text(text, style=style) for pair in cells for text in pair]
        table.add_row(Text(label, style=style), *texts)
    return table


_Row: TypeAlias = tuple[str, list[tuple[str, str]], str]


def _rows(lengths: Sequence[dict[str, Any]]) -> Iterator[_Row]:
    yield "tokens in a sequence", [(f"{one['seq_len']:,}", "") for one in lengths], "bold"
    yield "GFLOP per token", [("", "share")] * len(lengths), "dim"
    for part, word in _PART_WORDS.items():
        if any(one["parts"][part] for one in lengths):
            yield _shared(word, lengths, [one["parts"][part] for one in lengths])
    yield "all", [(_giga(one["per_token"]), "") for one in lengths], "bold"
    if any(one["mtp_per_token"] for one in lengths):
        yield _shared("of it for MTP", lengths, [one["mtp_per_token"] for one in lengths])
    yield "FLOP per sequence", [(_amount(one["per_sequence"]), "") for one in lengths], "bold"
    yield "counted otherwise", [("", "change")] * len(lengths), "dim"
    for key, word in _COUNTING_WORDS.items():
        values = [one["otherwise_counted"][key] for one in lengths]
        changes = [value - one["per_token"] for value, one in zip(values, lengths, strict=True)]
        if any(changes):
            yield _shared(word, lengths, values, changes)
    yield "executed besides", [("", "more")] * len(lengths), "dim"
    for key, word in _EXECUTED_WORDS.items():
        values = [one["not_counted"][key] for one in lengths]
        yield _shared(word, lengths, values, values)


def _shared(
    label: str,
    lengths: Sequence[dict[str, Any]],
    values: Sequence[int],
    changes: Sequence[int] | None = None,
) -> _Row:
    """A row of FLOPs with their shares, or with those of ``changes``, which have a sign."""
    sign = "" if changes is None else "+"
    shares = [
        100 * part / one["per_token"]
        for part, one in zip(values if changes is None else changes, lengths, strict=True)
    ]
    cells = [
        (_giga(value), f"{share:{sign}.1f}%") for value, share in zip(values, shares, strict=True)
    ]
    return label, cells, ""


def _giga(flops: float) -> str:
    giga = flops / 1e9
    return f"{giga:,.2f}" if giga >= 1 else f"{giga:.4f}"


def _amount(flops: float) -> str:
    """``1.065 P``: four digits that count, and the prefix of the unit."""
    for unit, name in ((1e18, "E"), (1e15, "P"), (1e12, "T")):
        if flops >= unit:
            return f"{flops / unit:,.4g} {name}"
    return f"{flops / 1e9:,.4g} G"


__all__ = ["FlopsReport", "flops", "flops_sections"]

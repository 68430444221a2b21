"""``meshplan models``: the model cards."""

from __future__ import annotations

import click


@click.command()
def models() -> None:
    """List the models that a scenario can name."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from meshplan.cli.output import table_console
    from meshplan.scenarios.cards import cards
    from meshplan.scenarios.parameters import active_parameters, total_parameters

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("model", no_wrap=True)
    table.add_column("title")
    for name in ("parameters B", "active B", "layers", "MTP"):
        table.add_column(name, justify="right")
    table.add_column("attention")
    table.add_column("experts")
    for card in cards():
        experts = f"{card.experts}, top {card.topk}" if card.is_moe else "-"
        attention = "+".join(dict.fromkeys(kind.attention for kind in card.kinds))
        table.add_row(
            Text(card.name),
            Text(card.title),
            f"{total_parameters(card) / 1e9:.1f}",
            f"{active_parameters(card) / 1e9:.1f}",
            str(card.layers),
            str(card.mtp_layers or "-"),
            attention,
            experts,
        )
    table_console().print(table)
    click.echo("A scenario names one (model: deepseek-v3), changes figures of one "
               "(model: {card: deepseek-v3, mtp_layers: 0}), or gives all figures.")  # fmt: skip

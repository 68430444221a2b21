"""``meshplan models``: the model cards."""

from __future__ import annotations

import click

from meshplan.cli.text_table import print_table

_COLUMNS = ("model", "parameters", "active", "layers", "MTP", "attention", "experts")


@click.command()
def models() -> None:
    """List the models that a scenario can name."""
    from meshplan.scenarios.cards import cards
    from meshplan.scenarios.parameters import active_parameters, total_parameters

    rows = [
        (
            card.name,
            f"{total_parameters(card) / 1e9:.1f} B",
            f"{active_parameters(card) / 1e9:.1f} B",
            str(card.layers),
            str(card.mtp_layers or "-"),
            "+".join(dict.fromkeys(k.attention for k in card.kinds if k.attention != "none")),
            f"{card.experts}, top {card.topk}" if card.is_moe else "-",
        )
        for card in cards()
    ]
    print_table(rows, columns=_COLUMNS, numbers=("parameters", "active", "layers", "MTP"))
    click.echo(
        "A scenario names one (model: deepseek-v3), changes figures of one\n"
        "(model: {card: deepseek-v3, mtp_layers: 0}), or gives all figures."
    )

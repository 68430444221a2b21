"""``meshplan clusters``: the cluster presets."""

from __future__ import annotations

import click


@click.command()
def clusters() -> None:
    """List the cluster presets that a scenario can name."""
    from rich import box
    from rich.table import Table

    from meshplan.cli.output import table_console
    from meshplan.topologies import presets

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("preset", no_wrap=True)
    table.add_column("GPU")
    for name in ("GiB", "a node", "NVLink", "GB/s", "NIC GB/s", "bf16", "fp8", "fp4"):
        table.add_column(name, justify="right")
    for preset in presets():
        node = preset.node_type
        domain = str(node.nvlink_domain_gpus)
        if node.planning_domain_gpus != node.nvlink_domain_gpus:
            domain += f" ({node.planning_domain_gpus} used)"
        peaks = (node.bf16_tflops, node.fp8_tflops, node.fp4_tflops)
        table.add_row(
            preset.name,
            node.gpu,
            f"{node.hbm_gib:g}",
            str(node.gpus_per_node),
            domain,
            f"{node.nvlink_gbps:g}",
            f"{node.nic_gbps:g}",
            *("-" if peak is None else f"{peak:g}" for peak in peaks),
        )
    table_console().print(table)
    click.echo(
        "GiB: memory that programs can use. NVLink: GPUs of a domain. GB/s: per GPU and "
        "direction. Peaks: dense TFLOP/s.\nA scenario adds the size: gpus: 256, nodes: 32, or "
        "domains: [72, 68, 56]."
    )

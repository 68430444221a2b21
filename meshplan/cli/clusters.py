"""``meshplan clusters``: the cluster presets."""

from __future__ import annotations

import click

from meshplan.cli.text_table import print_table

_NUMBERS = ("GiB", "node", "NVLink", "GB/s", "NIC", "bf16", "fp8", "fp4")


@click.command()
def clusters() -> None:
    """List the cluster presets that a scenario can name."""
    from meshplan.topologies import presets

    rows = []
    for preset in presets():
        node = preset.node_type
        peaks = (node.bf16_tflops, node.fp8_tflops, node.fp4_tflops)
        rows.append(
            (
                preset.name,
                node.gpu,
                f"{node.hbm_gib:g}",
                str(node.gpus_per_node),
                str(node.nvlink_domain_gpus),
                f"{node.nvlink_gbps:g}",
                f"{node.nic_gbps:g}",
                *("-" if peak is None else f"{peak:g}" for peak in peaks),
            )
        )
    print_table(rows, columns=("preset", "GPU", *_NUMBERS), numbers=_NUMBERS)
    click.echo(
        "GiB: memory that programs can use. node, NVLink: GPUs of a node and of an NVLink domain.\n"
        "GB/s, NIC: NVLink and network bandwidth per GPU and direction, GB/s. bf16, fp8, fp4:\n"
        "dense TFLOP/s. A scenario adds the size: gpus: 256, nodes: 32, or domains: [72, 68, 56]."
    )

"""``meshplan place``: where the ranks of a plan lie."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from meshplan.cli.options import json_option, quiet_option

if TYPE_CHECKING:
    from meshplan.cli.whole_file import WholeFile


@click.command(short_help="Where the ranks of a plan lie: nodes, GPUs, files for launchers.")
@click.argument("result", metavar="PLAN.json")
@click.option("--hostfile", metavar="PATH", help="Write the node of each rank, one a line.")
@click.option("--nodelist", metavar="PATH", help="Write the nodes in rank order, one a line.")
@click.option(
    "--rankmap", metavar="PATH", help="Write a CSV with the place and the groups of each rank."
)
@click.option("--picture", metavar="PNG|SVG", help="Draw the cluster, its stages and groups.")
@json_option
@quiet_option
def place(
    result: str,
    hostfile: str | None,
    nodelist: str | None,
    rankmap: str | None,
    picture: str | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Place the ranks of a plan that `solve --json` or `check --json` wrote.

    TP and EP groups lie in the NVLink domains that the plan keeps whole for them; the order of the
    domains is the one with which the fewest pipeline stages share a domain or leaf switch.
    """
    import meshplan
    from meshplan.cli.output import picture_file
    from meshplan.cli.whole_file import WholeFile, keep_apart, output_file
    from meshplan.solver.report.data import dumps

    wanted = {"hostfile": hostfile, "nodelist": nodelist, "rankmap": rankmap}
    files = {name: WholeFile(path, f"--{name}") for name, path in wanted.items() if path}
    drawing, form = picture_file(picture)
    target = output_file(json_path, "--json")
    keep_apart([*files.values(), drawing, target], {"PLAN.json": result})
    report = meshplan.place(result)
    # All contents before the first file, so that a fault leaves none behind.
    contents: list[tuple[WholeFile, str | bytes]] = [
        (file, getattr(report, name)()) for name, file in files.items()
    ]
    if drawing is not None:
        contents.append((drawing, report.picture(form)))
    if target is not None:
        contents.append((target, dumps(report.to_json())))
    for file, content in contents:
        file.write(content)
    if json_path == "-":
        sys.stdout.write(dumps(report.to_json()))
    elif not quiet and not sys.stdout.isatty():
        sys.stdout.write(str(report))
    elif not quiet:
        from rich.console import Console

        report.render(Console())

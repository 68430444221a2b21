"""The cluster as a picture: NVLink domains, and where stages and expert groups sit in them."""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from meshplan.solver.extras import need
from meshplan.solver.placement.place import PlacedDomain, Placement

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_INCHES, _DPI = (12.0, 7.5), 130
#: Domains that have a line of text, and stages that have an entry in the legend, at most.
_MOST_LABELS, _MOST_ENTRIES = 60, 16
#: Cells between which lines are drawn, at most.
_MOST_LINES = 6_000
#: Stages whose colours have nothing to do with each other, at most.
_APART = 10
_BACKGROUND, _IDLE = (1.0, 1.0, 1.0), (0.84, 0.84, 0.84)
#: Share of white in the shade of every other group.
_LIGHTER = 0.38
#: Columns of cells for each row of cells.
_ASPECT = 1.7


class _Tiles:
    """Domains as tiles of cells, a row for each node and a column for each of its GPUs."""

    def __init__(self, placement: Placement) -> None:
        self.width = placement.problem.node_type.gpus_per_node
        self.gap = 2 if len(placement.domains) + len(placement.idle) <= _MOST_LABELS else 1
        largest = max(
            [domain.gpus for domain in placement.domains] + [gpus for _, gpus in placement.idle]
        )
        self.width = min(self.width, largest)
        self.height = -(-largest // self.width)
        self.number = len(placement.domains) + len(placement.idle)
        across = math.sqrt(
            self.number * _ASPECT * (self.height + self.gap) / (self.width + self.gap)
        )
        self.columns = max(1, min(self.number, round(across)))
        self.rows = -(-self.number // self.columns)

    def corner(self, tile: int) -> tuple[int, int]:
        """Row and column of the first cell of a tile."""
        row, column = divmod(tile, self.columns)
        return row * (self.height + self.gap), column * (self.width + self.gap)

    def cells(self) -> tuple[int, int]:
        """Rows and columns of cells of all tiles."""
        height = self.rows * (self.height + self.gap) - self.gap
        return height, self.columns * (self.width + self.gap) - self.gap


def draw(placement: Placement, name: str, form: str = "png") -> bytes:
    """The picture as ``png`` or ``svg``.

    Every square is a GPU, coloured by pipeline stage; shades alternate from one group to the next.

    Raises
    ------
    InputError
        If Matplotlib is not installed.
    """
    need("matplotlib", "plot", "a picture")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    tiles = _Tiles(placement)
    figure = Figure(figsize=_INCHES, dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    colors = _stage_colors(placement.layout.pp)
    axes.imshow(_image(placement, tiles, colors), interpolation="nearest", aspect="equal")
    axes.set_axis_off()
    if tiles.number <= _MOST_LABELS:
        _labels(axes, placement, tiles)
    if math.prod(tiles.cells()) <= _MOST_LINES:
        _lines(axes, tiles)
    _legend(figure, placement, colors)
    figure.suptitle(_title(placement, name), fontsize=12)
    buffer = io.BytesIO()
    # The same bytes on every run: no date, no random ids.
    with mpl.rc_context({"svg.hashsalt": "meshplan"}):
        metadata = {"Date": None} if form == "svg" else {"Software": "meshplan"}
        figure.savefig(buffer, format=form, metadata=metadata)
    return buffer.getvalue()


def _stage_colors(stages: int) -> npt.NDArray[np.float64]:
    """A colour for each stage: apart where they are few, along a scale where they are many."""
    import matplotlib as mpl
    import numpy as np

    scale = "tab10" if stages <= _APART else "turbo"
    places = np.arange(stages) if stages <= _APART else np.linspace(0.05, 0.95, stages)
    return np.array(mpl.colormaps[scale](places))[:, :3]


def _image(
    placement: Placement, tiles: _Tiles, colors: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Colour of every cell: [row, column, channel]."""
    import numpy as np

    image = np.empty((*tiles.cells(), 3))
    image[:] = _BACKGROUND
    block = _group(placement)[1]
    sizes = [domain.gpus for domain in placement.domains] + [gpus for _, gpus in placement.idle]
    for tile, gpus in enumerate(sizes):
        row, column = tiles.corner(tile)
        shades = np.empty((tiles.height * tiles.width, 3))
        shades[:] = _BACKGROUND
        shades[:gpus] = _IDLE
        if tile < len(placement.domains):
            domain = placement.domains[tile]
            ranks = np.arange(domain.ranks.start, domain.ranks.stop)
            own = colors[ranks // placement.stage_gpus]
            light = (ranks // block % 2 == 1)[:, None]
            shades[: domain.used] = np.where(light, own + (1 - own) * _LIGHTER, own)
        tile_cells = shades.reshape(tiles.height, tiles.width, 3)
        image[row : row + tiles.height, column : column + tiles.width] = tile_cells
    return image


def _group(placement: Placement) -> tuple[str, int]:
    """The groups that are told apart by shade: their name, and the ranks of a block."""
    layout = placement.layout
    if layout.ep > 1:
        ranks = layout.etp * layout.ep
        return f"expert groups of {ranks} GPUs", ranks
    ranks = layout.tp * layout.cp
    return f"groups of {ranks} GPUs that share a batch (tp × cp)", ranks


def _labels(axes: Any, placement: Placement, tiles: _Tiles) -> None:
    size = max(4.0, min(9.0, 260 / tiles.cells()[1] * 1.6))
    texts = [_domain_text(domain) for domain in placement.domains]
    texts += [f"{index}: 0 of {gpus}" for index, gpus in placement.idle]
    for tile, text in enumerate(texts):
        row, column = tiles.corner(tile)
        axes.text(
            column + tiles.width / 2 - 0.5,
            row + tiles.height - 0.3,
            text,
            ha="center",
            va="top",
            fontsize=size,
        )


def _lines(axes: Any, tiles: _Tiles) -> None:
    """White lines between cells, so that each GPU is seen."""
    rows, columns = tiles.cells()
    style = {"color": "white", "linewidth": 0.6}
    axes.hlines([row - 0.5 for row in range(1, rows)], -0.5, columns - 0.5, **style)
    axes.vlines([column - 0.5 for column in range(1, columns)], -0.5, rows - 0.5, **style)


def _domain_text(domain: PlacedDomain) -> str:
    return f"{domain.index}: {domain.used} of {domain.gpus}"


def _legend(figure: Any, placement: Placement, colors: npt.NDArray[np.float64]) -> None:
    from matplotlib.patches import Patch

    stages = range(placement.layout.pp)
    shown = stages if len(stages) <= _MOST_ENTRIES else (0, len(stages) // 2, len(stages) - 1)
    entries = [Patch(facecolor=tuple(colors[one]), label=f"stage {one}") for one in shown]
    if _idle(placement):
        entries.append(Patch(facecolor=_IDLE, label="idle"))
    figure.legend(handles=entries, loc="outside lower center", ncols=9, frameon=False, fontsize=9)


def _idle(placement: Placement) -> int:
    unused = sum(domain.gpus - domain.used for domain in placement.domains)
    return unused + sum(gpus for _, gpus in placement.idle)


def _title(placement: Placement, name: str) -> str:
    kind = placement.problem.node_type
    domains = len(placement.domains) + len(placement.idle)
    all_ = placement.layout.gpus + _idle(placement)
    used = f"{placement.layout.gpus:,} of {all_:,} GPUs ({kind.gpu})"
    groups = f"shades alternate between {_group(placement)[0]}"
    tiles = f"each tile is an NVLink domain, each row of it a node, each square a GPU; {groups}"
    return f"{name}: {used} in {domains:,} NVLink domains\n{tiles}"


__all__ = ["draw"]

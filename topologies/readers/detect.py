"""Which format a topology file has, by its content: names of files say little."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Fabric, Inventory, NodeReading
from meshplan.topologies.readers.slurm_conf import read_slurm_conf
from meshplan.topologies.readers.slurm_yaml import read_slurm_yaml

#: What a topology file can say.
Reading: TypeAlias = Inventory | NodeReading | Fabric

_SLURM = re.compile(r"^[ \t]*#?[ \t]*(?:SwitchName|BlockName|BlockSizes)[ \t]*=", re.M | re.I)
_YAML = re.compile(r"^[ \t-]*topology[ \t]*:", re.M)


def read_topology_text(text: str) -> Reading:
    """Read a topology file of any format that is known.

    Raises
    ------
    TopologyFileError
        If the format is not known, or the reader of the format refuses the text.
    """
    return _reader(text)(text)


def _reader(text: str) -> Callable[[str], Reading]:
    if _SLURM.search(text):
        return read_slurm_conf
    if _YAML.search(text):
        return read_slurm_yaml
    raise TopologyFileError(
        "the format of the file is not known",
        advice="give Slurm's topology.conf or topology.yaml.",
    )

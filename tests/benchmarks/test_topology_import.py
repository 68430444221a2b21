"""The files that the benchmark of topology files makes."""

from __future__ import annotations

import pytest

from benchmarks.topology_import import LARGE
from meshplan.topologies.inventory import Fabric, Inventory
from meshplan.topologies.readers.detect import read_topology_text


@pytest.mark.parametrize("name", LARGE)
def test_files_hold_the_nodes_they_shall(name: str) -> None:
    """Tests that 40 nodes are 40 nodes, so that what is timed is what is claimed."""
    reading = read_topology_text(LARGE[name](40))
    if isinstance(reading, Fabric):
        assert len({host for leaf in reading.leaves for host in leaf.hosts}) == 40
        assert len(reading.leaves) == 3 * 4  # racks of 18, 18 and 4 nodes, four rails
    else:
        assert isinstance(reading, Inventory)
        assert len(reading.nodes) == 40

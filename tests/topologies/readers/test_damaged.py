"""Files that were damaged: read or refused, never a fault of the reader."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from benchmarks.topology_import import LARGE
from meshplan.topologies import ClusterError, node_type
from meshplan.topologies.assembly import assemble
from meshplan.topologies.cluster_file import read_cluster_file
from meshplan.topologies.inventory import Inventory
from meshplan.topologies.readers.detect import read_topology_text

DATA = Path(__file__).parent.parent / "data"
TEXTS = [
    *(path.read_text("utf-8")[:3000] for path in sorted(DATA.iterdir()) if path.suffix != ".md"),
    *(make(3) for make in LARGE.values()),
]
TOKENS = ["[", "]", "{", "}", "=", ",", "-", ":", "\n", "\t", '"', "<", ">", "&", "*", "#", "\0",
          "\x1b[4m", "é", "1", "999999999999", "null", "GPU0", "S-", "Nodes=", "\\"]  # fmt: skip


@given(st.data())
@settings(max_examples=400)
def test_damaged_files_are_read_or_refused(data: st.DataObject) -> None:
    """Tests published and made files with a few pieces cut out, doubled or put in."""
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = min(len(text), start + data.draw(st.sampled_from([0, 0, 1, 2, 7, 60])))
        put = data.draw(st.sampled_from([*TOKENS, "", text[start:end] * 2]))
        text = text[:start] + put + text[end:]
    _read(text)


@given(st.text(max_size=60))
@example("")
@example('{"items": [{}]}')
@settings(max_examples=200)
def test_any_text_is_read_or_refused(text: str) -> None:
    """Tests short texts of any kind behind the beginnings of the formats."""
    for start in ("", "{", "<", "BlockName=", "- topology: ", "Switch 1 ", " GPU0 ", "kind: "):
        _read(start + text)


@given(st.text(max_size=40), st.sampled_from(["domains", "leaves", "nodes", "name", "node_type"]))
@settings(max_examples=100)
def test_any_cluster_file_is_read_or_refused(text: str, key: str) -> None:
    """Tests cluster files with one value of any kind."""
    values = {"name": "c", "node_type": "h100-hgx", "domains": "[{gpus: 8}]", key: text}
    lines = [f"{name}: {value}" for name, value in values.items()]
    try:
        read_cluster_file("\n".join(["meshplan_cluster: 1", *lines]))
    except ClusterError as error:
        assert error.message


def _read(text: str) -> None:
    try:
        reading = read_topology_text(text)
        if isinstance(reading, Inventory):
            assemble("c", [reading], node_type("gb200-nvl72"))
    except ClusterError as error:
        assert error.message

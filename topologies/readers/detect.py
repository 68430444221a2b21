"""Which format a topology file has, by its content: names of files say little."""

from __future__ import annotations

import re
from typing import TypeAlias

from meshplan.topologies.errors import TopologyFileError
from meshplan.topologies.inventory import Fabric, Inventory, NodeReading
from meshplan.topologies.readers.fabric_ids import read_fabric_ids
from meshplan.topologies.readers.ibnetdiscover import read_ibnetdiscover
from meshplan.topologies.readers.nccl_xml import read_nccl_xml
from meshplan.topologies.readers.node_labels import read_node_labels
from meshplan.topologies.readers.slurm_conf import read_slurm_conf
from meshplan.topologies.readers.slurm_yaml import read_slurm_yaml
from meshplan.topologies.readers.smi_topo import read_smi_topo
from meshplan.topologies.readers.smi_xml import read_smi_xml
from meshplan.topologies.readers.xml_elements import read_xml

#: What a topology file can say.
Reading: TypeAlias = Inventory | NodeReading | Fabric

_SLURM = re.compile(r"^[ \t]*#?[ \t]*(?:SwitchName|BlockName|BlockSizes)[ \t]*=", re.M | re.I)
_YAML = re.compile(r"^(?:-[ \t]+)?topology[ \t]*:(?=[ \t]*\S)", re.M)
_KIND = re.compile(r"^kind:[ \t]*(\S{1,40})", re.M)
_MODEL = re.compile(r"^(?:switches|blocks|capacity_blocks):", re.M)
_INFINIBAND = re.compile(r"^(?:Switch|Ca)\s+[0-9]+\s+\"", re.M)
_MATRIX = re.compile(r"^[ \t]*(?:\x1b\[[0-9;]*m)?[ \t]*GPU0\b", re.M)
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|fabric\.clusterUuid", re.I)


def read_topology_text(text: str, name: str = "this-node") -> Reading:
    """Read a topology file of any format that is known.

    ``name`` is what a node is called whose file does not name it.

    Raises
    ------
    TopologyFileError
        If the format is not known, or the reader of the format refuses the text.
    """
    start = text.lstrip("\ufeff \t\r\n")[:1]
    if not start:
        raise TopologyFileError(
            "the file is empty", advice="look whether the command that wrote it failed.", line=1
        )
    if start == "{":
        return read_node_labels(text)
    if start == "<":
        root = read_xml(text)
        if root.tag == "nvidia_smi_log":
            return read_smi_xml(root, name)
        if root.tag in ("system", "gpus"):
            return read_nccl_xml(root)
        raise TopologyFileError(
            f"XML that begins with <{root.tag[:40]}> is not known",
            advice="give a topology of NCCL (<system>), or the output of nvidia-smi -q -x.",
            line=root.line,
        )
    if _INFINIBAND.search(text):
        return read_ibnetdiscover(text)
    if _MATRIX.search(text):
        return read_smi_topo(text)
    if _SLURM.search(text):
        return read_slurm_conf(text)
    if kind := _KIND.search(text):
        raise _other(text, kind, f"a Kubernetes object of kind {kind[1]}, without labels of nodes")
    if _YAML.search(text):
        return read_slurm_yaml(text)
    if model := _MODEL.search(text):
        raise _other(text, model, "a model of topograph, not what it writes")
    if _ID.search(text):
        return read_fabric_ids(text, name)
    raise TopologyFileError(
        "the format of the file is not known",
        advice="give Slurm's topology.conf or topology.yaml, kubectl get nodes -o json, ids of the "
        "NVLink fabric, nvidia-smi topo -m or -q -x, a topology of NCCL, or ibnetdiscover.",
        line=1,
    )


def _other(text: str, match: re.Match[str], what: str) -> TopologyFileError:
    return TopologyFileError(
        f"this is {what}",
        advice="give Slurm's topology.conf, or the output of kubectl get nodes -o json.",
        line=text.count("\n", 0, match.start()) + 1,
    )

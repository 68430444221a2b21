"""What is asked: the scenario file, its checks, and the models that it can name.

==================  =====================================================================
``loader``          :func:`load`, :func:`loads`, :func:`from_mapping` and what they resolve
``schema``          :class:`Scenario` and its sections, :func:`json_schema`
``pins``            :class:`Pin`, :class:`CommPin`, :class:`BatchSize`: values left open
``choices``         flags, names and ``auto`` beside fixed values
``checks``          refusals of single values, worded with value and advice
``model_ref``       :class:`ModelRef`: which model a scenario names
``source_map``      :class:`SourceMap`: file and line of every value
``complaints``      pydantic's errors in words for people
``yaml_reader``     safe YAML with lines
``errors``          :class:`InputError`
``model_card``      :class:`ModelCard` and :class:`LayerKind`
``cards``           the shipped cards: :func:`load_card`, :func:`card_names`
``parameters``      parameters of a card, by part
``flops``           FLOPs of a card, by part
``inputs``          :func:`input_files`: which files a scenario is made of
``self_contained``  :func:`self_contained`: a scenario as data without its folder
==================  =====================================================================
"""

from meshplan.scenarios.cards import card_names, load_card
from meshplan.scenarios.errors import InputError
from meshplan.scenarios.inputs import input_files
from meshplan.scenarios.loader import from_mapping, load, loads, resolve_cluster, resolve_model
from meshplan.scenarios.model_card import LayerKind, ModelCard
from meshplan.scenarios.model_ref import ModelRef
from meshplan.scenarios.pins import BatchSize, CommPin, Pin
from meshplan.scenarios.schema import (
    ClusterSpec,
    Expect,
    ExpectedLayout,
    Framework,
    LayoutPins,
    Limits,
    Objective,
    Options,
    Scenario,
    Training,
    Workload,
    json_schema,
)
from meshplan.scenarios.self_contained import self_contained
from meshplan.scenarios.source_map import SourceMap

__all__ = [
    "BatchSize",
    "ClusterSpec",
    "CommPin",
    "Expect",
    "ExpectedLayout",
    "Framework",
    "InputError",
    "LayerKind",
    "LayoutPins",
    "Limits",
    "ModelCard",
    "ModelRef",
    "Objective",
    "Options",
    "Pin",
    "Scenario",
    "SourceMap",
    "Training",
    "Workload",
    "card_names",
    "from_mapping",
    "input_files",
    "json_schema",
    "load",
    "load_card",
    "loads",
    "resolve_cluster",
    "resolve_model",
    "self_contained",
]

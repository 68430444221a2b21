"""Files that people have, turned into parts of a scenario.

===================  ====================================================================
``megatron_args``    :func:`read_arguments`: launch scripts, argument dumps, ``tp1_pp2``
``megatron_part``    :class:`ScenarioPart`: what the arguments mean in a scenario
``megatron_stages``  virtual stages and uneven pipeline ends
``megatron_flags``   the arguments that are read, and their values
``megatron_log``     :func:`read_log`: the steps of a training log
``steady_steps``     :func:`steady_step`: the step time of a run
``run_layout``       the layout of a run that was logged
``agreement``        where arguments and a scenario differ
``shell_script``     the commands of a launch script, with variables; nothing is run
``shell_words``      words and operators of a shell script
``hf``               :func:`import_model`: Hugging Face ``config.json`` to a model card
``hf_families``      which field of which architecture means what
``hf_parts``         attention, layer patterns and experts that architectures share
``hf_config``        the fields of one ``config.json``, checked one by one
``text_file``        small files, bounded and UTF-8
===================  ====================================================================
"""

from __future__ import annotations

from meshplan.scenarios.importers.hf import ImportedModel, import_model, model_from_config
from meshplan.scenarios.importers.megatron_args import (
    MegatronArguments,
    Setting,
    UnknownFlag,
    read_arguments,
    read_arguments_file,
)
from meshplan.scenarios.importers.megatron_part import ScenarioPart

__all__ = [
    "ImportedModel",
    "MegatronArguments",
    "ScenarioPart",
    "Setting",
    "UnknownFlag",
    "import_model",
    "model_from_config",
    "read_arguments",
    "read_arguments_file",
]

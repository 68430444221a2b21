"""Plans in the words of those who run them: launch flags, overrides, a batch script.

===============  ===========================================================================
``plan_file``    :func:`read_plan`: a plan that ``solve --json`` wrote, held to be unedited
``setting``      :class:`Setting`: one decision as Megatron-LM and Megatron-Bridge say it
``of_layout``    degrees, batch, pipeline, recompute, offload, dispatcher, CUDA graphs
``of_training``  number formats, optimizer, loss
``of_model``     the model itself, for Megatron-LM
``environment``  environment variables that the plan needs, each with its reason
``documents``    flags and overrides as texts
``slurm``        a batch script
===============  ===========================================================================

Names are those of megatron-core 0.19 (``megatron/training/arguments.py`` and the configuration
classes that give their fields as flags), and of Megatron-Bridge 0.6; where an earlier release has
another name, the scenario's ``framework.version`` decides.
"""

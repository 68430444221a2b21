"""Step time, in whole microseconds, as terms of a few decisions each.

===============  =============================================================================
``trust``        how far to trust a predicted time
``device``       rates of one GPU, GEMMs, elementwise work
``links``        bandwidth of a group by the links it crosses; TP collectives
``attention``    attention half of a layer, context-parallel communication
``mlp``          dense MLP, shared and routed experts
``dispatch``     token dispatch and combine
``host``         launch time, and how it overlaps with the GPU
``offload``      transfers of offloaded activations
``ends``         embedding, loss, MTP projection, pipeline p2p
``update``       gradient exchange and optimizer
``step``         :func:`step_time`: the step of a concrete layout
``timeline``     when each pass of a pipeline runs
===============  =============================================================================
"""

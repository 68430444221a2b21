"""Memory of every pipeline rank, in quanta of 256 KiB, as terms of a few decisions each.

===============  =============================================================================
``formats``      bytes per parameter and per saved element, by numeric format
``static``       weights, gradients, optimizer state
``activations``  what a layer saves for one micro-batch, under the chosen recompute
``working``      what is alive only while a layer runs, and the logits
``overhead``     context, communicators, dispatcher buffers, graph pools
``stage``        :func:`rank_memory`: the peak of one rank, its parts and its event
===============  =============================================================================
"""

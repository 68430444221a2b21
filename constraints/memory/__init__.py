"""Memory of every pipeline rank, in quanta of 256 KiB, as terms of a few decisions each.

===============  =============================================================================
``formats``      bytes per parameter and per saved element, by numeric format
``static``       weights, gradients, optimizer state
``activations``  what a layer saves for one micro-batch, under the chosen recompute
``inputs``       inputs that a layer's modules save, and whether offload can move them
``offloaded``    activations that fine-grained offload keeps on the host
``working``      what is alive only while a layer runs, and the logits
``overhead``     context, communicators, dispatcher buffers, graph pools
``stage``        :func:`rank_memory`: events of one rank, its peak, the parts of both
``items``        :func:`itemize`: what each part consists of
``verdict``      whether a layout fits, on the GPUs and on the hosts
===============  =============================================================================

``linear_attention`` has what gated-delta-net and Mamba layers save.
"""

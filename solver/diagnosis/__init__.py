"""Why nothing fits, and what would help.

================  =============================================================================
``diagnose``      :func:`diagnose`: all of it, the cheap answers first
``result``        :class:`Diagnosis`: what it says, as data
``stated``        a layout that a person states, as pins
``gpus``          the number of GPUs that is diagnosed, where that is open
``facts``         what a conflict is made of
``arithmetic``    floors of memory, grid and batch, before any search
``legality``      which rules and pins clash: a CP-SAT model with a switch for each fact
``queries``       what is possible with some of the facts, each question asked once
``shrink``        irreducible subsets: one, or all
``conflict``      minimal conflicts of a problem
``leanest``       a layout that needs little memory, as an example
``cause``         the cause in sentences, with its numbers
``near_misses``   what a plan that fits is close to
``words``         rules and pins of a conflict in the user's numbers
``memory_words``  memory in the user's numbers
================  =============================================================================
"""

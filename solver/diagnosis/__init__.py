"""Why nothing fits, and what would help.

================  =============================================================================
``facts``         what a conflict is made of
``arithmetic``    floors of memory, grid and batch, before any search
``legality``      which rules and pins clash: a CP-SAT model with a switch for each fact
``queries``       what is possible with some of the facts, each question asked once
``shrink``        irreducible subsets: one, or all
``conflict``      minimal conflicts of a problem
``words``         rules and pins of a conflict in the user's numbers
``memory_words``  memory in the user's numbers
================  =============================================================================
"""

"""What is legal and what fits: rules, memory, the checks that need no solver.

==================  ============================================================================
``decisions``       names of all decisions, and what may be derived from them
``layout``          :class:`Layout` and :class:`Slot`: one concrete layout
``problem``         :class:`Problem`: a scenario resolved into numbers
``resolve``         :func:`resolve`: from scenario to problem
``parts``           how many GPUs of a cluster a layout may use, and which
``terms``           cost terms: functions whose parameters are the decisions they read
``rule``            :class:`Rule` and :class:`Violation`
``rules``           the catalogue, one module a family, ``ALL_RULES`` in sight
``layout_rules``    rules on concrete pipeline slots
``pipeline``        slots, layout strings, even splits
``schedule``        which micro-batches a pipeline rank keeps alive
``context``         groups of hierarchical context parallelism
``memory``          memory of every pipeline rank
``advisory``        :class:`Advisory`: what guidance is
``idle``            settings that change nothing in a layout
``advisories``      guidance on legal layouts, ``ALL_ADVISORIES`` in sight
==================  ============================================================================
"""

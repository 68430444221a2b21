"""Sweeps: one scenario over a grid of values, solved at once, and kept as it is finished.

================  ===========================================================================
``api``           :func:`meshplan.sweep`
``axes``          :class:`Axis`: a field and its values, as ``--over`` says them
``grid``          :class:`Grid`: each combination as a checked scenario with a key
``row``           what a scenario came to, as plain values by column
``work``          what a worker does with one scenario
``local``         tasks in this process, or in several
``dask_cluster``  tasks on a Dask cluster
``journal``       :class:`Journal`: finished rows on the disk
``run``           :class:`Run`: takes from the journal, solves the rest
``result``        :class:`Sweep`: the rows in the order of the grid
``tables``        the rows as CSV, JSON or Parquet
``picture``       throughput, DP left and least GPUs against the first axis
================  ===========================================================================

``meshplan sweep`` and :func:`meshplan.sweep` share it.
"""

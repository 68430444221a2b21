"""Two layouts side by side: what they differ in, and what each difference costs.

=============  ====================================================================
``decisions``  the decisions in which two layouts differ
``terms``      the difference of their step times, term by term
``flips``      each differing decision changed alone
``why``        a given layout against the optimum: ``meshplan why``
``stored``     results that were written as JSON, read back and costed again
``diff``       two stored results: ``meshplan diff``
=============  ====================================================================
"""

"""Scenario files as a test suite: run them, hold the answers to what they expect, keep them.

================  ===========================================================================
``files``         which files are scenarios; ``-k``
``answer``        :class:`Answer`: what a search said, as plain data
``expectations``  what differs from an ``expect:``
``case``          :class:`Case`: the outcome of one file
``workers``       cases in processes of their own
``update``        answers that become expectations; ``rewrite`` edits the YAML
``lock``          :class:`Lock`: the answers in a file, for review
``junit``         outcomes as JUnit XML
``github``        outcomes as annotations of GitHub Actions
================  ===========================================================================

``meshplan test`` and the pytest plugin share it.
"""

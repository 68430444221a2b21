"""Results as an HTML page, and as fragments for notebooks.

==============  ================================================
``page``        :func:`html_page`: the whole page, which needs no other file
``notebook``    :func:`notebook_fragment`: what a notebook shows of a result
``heading``     the answer, the figures that matter most, the question
``layout``      sections: memory by rank, time of a step
``pipeline``    section: pipeline slots and schedule
``placement``   section: links that groups cross, NVLink domains of the ranks
``plans``       sections: Pareto front, ranking, alternatives, relaxations
``compare``     sections: two layouts side by side
``diagnosis``   sections: why nothing fits, what would help
``remarks``     sections that are lists
``content``     what sections consist of
``figures``     drawings as Altair charts
``vega``        charts as Vega specifications, and Vega itself
``templates``   HTML, style, script
==============  ================================================

A page is made from the JSON of its result alone, but for the words of its head.
"""

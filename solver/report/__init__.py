"""Results for people and tools.

==============  ================================================
``data``        results as plain data: the JSON contract
``breakdown``   the step time by part
``placement``   which links the groups of a layout cross
``text``        reports in text, on a terminal, as HTML
``summary``     section: the answer, layout, throughput, memory
``bars``        section: memory by rank and time of a step
``remarks``     sections that are lists
``words``       words and numbers that the sections share
==============  ================================================
"""

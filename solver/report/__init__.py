"""Results for people and tools.

==============  ================================================
``data``        results as plain data: the JSON contract
``placement``   which links the groups of a layout cross
``cluster``     GPUs used and idle, and why
``text``        reports in text, on a terminal, as HTML
``summary``     section: the answer, layout, throughput, memory
``bars``        section: memory by rank and time of a step
``memory``      memory of one layout, event by event and item by item
``flops``       FLOPs of one model by part and length
``listings``    sections on request: ranking, Pareto front, relaxations
``why``         a layout against the optimum
``diff``        two results side by side
``compare``     sections that both of them have; ``compare_data`` their JSON
``remarks``     sections that are lists
``words``       words and numbers that the sections share
==============  ================================================
"""

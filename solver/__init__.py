"""Search, proof, explanation.  Nothing here imports ortools or numpy until a search begins.

===============  =============================================================================
``solve``        :func:`solve`: a plan with its proof, or why there is none
``search``       the algorithm
``used``         how many GPUs of a cluster are used, where that is open
``rates``        what any layout takes of a GPU for one sequence, at least
``regions``      cells, their costs and bounds, the order in which they are looked at
``space``        which degrees and options may be combined; which pipeline splits
``meshes``       the rules over degrees, joined
``axes``         terms and rules tabulated over the axes of the search
``costs``        costs of all cells
``shapes``       what each rank of a pipeline shape can hold
``windows``      kinds of layers that a slot can hold, wherever the cuts lie
``bounds``       lower bounds of step time and peak memory
``program``      the CP-SAT program of a cell and its pipeline slots
``refuted``      what an excluded cell says of others
``found``        a plan that a program found
``ranking``      the fastest degree tuples, the Pareto front
``binding``      what holds a plan, in sentences
``relaxations``  what one step more of each limit, pin and resource gains
``listings``     both, for a proved plan, on request
``diagnosis``    why nothing fits: which rules, pins and limits clash, and what would help
``judge``        rules, memory and time of a concrete layout, without a solver
``check``        :func:`check`: the judgement of a layout that a person states
``complete``     what a stated layout leaves open
``change``       a layout with other degrees
``changed``      a problem resolved again with some fields of its scenario changed
``repairs``      the smallest changes that make an infeasible scenario feasible
``layout_text``  layouts written as text
``results``      what the public functions return
``progress``     what a running search reports
``extras``       a message where an optional library is not installed
``time``         step time
``calibrate``    the step-time model fitted to measured runs
``breakdown``    where the time of a step goes
``compare``      two layouts side by side
``placement``    where the ranks of a layout lie
``report``       results as JSON, text and HTML
===============  =============================================================================
"""

"""Where the ranks of a layout lie: which GPU of which node, and what is proved about it.

===========  ==================================================================
``borders``  domains in an order whose borders are stage borders: CP-SAT
``place``    :func:`place`: the order of the domains, and each rank's GPU
``report``   what ``meshplan place`` answers
``files``    host file, node list, rank map
``picture``  the cluster as a picture
===========  ==================================================================
"""

from __future__ import annotations

import random

import numpy as np

from meshplan.solver.windows import Windows


def test_windows_are_those_of_all_runs() -> None:
    """Tests least and most of a kind against every run of a length that leaves room around it."""
    rng = random.Random(0)
    for _ in range(30):
        kinds = [rng.random() < 0.4 for _ in range(rng.randint(1, 12))]
        total, windows = len(kinds), Windows(kinds)
        for length in range(total + 1):
            for first in range(total + 1):
                after = rng.randint(0, total)
                runs = range(first, total - length - after + 1)
                counts = [sum(kinds[start : start + length]) for start in runs]
                expected = (min(counts), max(counts)) if counts else (0, length)
                found = windows.ranges(*(np.array([x]) for x in (length, first, after)))
                assert tuple(int(one[0]) for one in found) == expected

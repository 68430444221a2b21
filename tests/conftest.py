"""Hypothesis profiles, which tests run by default, and the signals that their programs start with.

Choose one with the environment variable ``HYPOTHESIS_PROFILE``.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

# No deadline anywhere: a test that fails because the machine was busy tells nothing.
settings.register_profile("dev", deadline=None, max_examples=50)
# The same examples on each run, so that a red build is red for the next person, too.
settings.register_profile(
    "ci", deadline=None, max_examples=50, derandomize=True, database=None, print_blob=True
)
settings.register_profile("deep", deadline=None, max_examples=2_000)

settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
)

# Started in the background of a shell, pytest is told to ignore Ctrl-C, and so would be all that it
# starts: also the commands whose answer to Ctrl-C is tested.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that need megatron-core unless ``-m`` names them; pytest counts them."""
    if "peer" in (config.option.markexpr or ""):
        return
    left_out = [item for item in items if item.get_closest_marker("peer")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("peer")]

"""Talk to :mod:`tests.peer.megatron_peer`: start it in its environment, ask, read the answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Names the Python that has megatron-core; the running one otherwise.
PYTHON_VARIABLE = "MESHPLAN_PEER_PYTHON"


class PeerError(RuntimeError):
    """The process that asks megatron-core has ended, or could not start."""


class Peer:
    """A process that asks the installed megatron-core; starting it takes seconds, a query little.

    Attributes
    ----------
    version
        Release of megatron-core that answers.
    """

    def __init__(self) -> None:
        python = os.environ.get(PYTHON_VARIABLE) or sys.executable
        self._process = subprocess.Popen(
            [python, "-m", "tests.peer.megatron_peer"],
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.version: str = self._answer()["version"]

    def ask(self, query: dict[str, Any]) -> dict[str, Any]:
        """Answer to one query; its keys are those of :mod:`tests.peer.megatron_peer`.

        Raises
        ------
        PeerError
            If the process has ended; the text has the end of what it wrote to standard error.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(query) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the reader below says why
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._process.stderr.read().strip().splitlines()
            raise PeerError(
                f"no answer from megatron-core; set {PYTHON_VARIABLE} to the Python of an "
                f"environment with the extra peer. Its last words: {' / '.join(said[-3:])}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

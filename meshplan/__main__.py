"""``python -m meshplan``: the command line."""

from __future__ import annotations

from meshplan.cli import main

if __name__ == "__main__":
    main(prog_name="meshplan")

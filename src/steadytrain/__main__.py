"""``python -m steadytrain``."""

from __future__ import annotations

import importlib
import sys


def _imports() -> None:
    """Import the command line without the current folder, which Python puts first for ``-m``: a ``click.py`` there is
    the user's. Commands that run a script find the folder at its place again."""
    here = sys.path[:1] if not getattr(sys.flags, "safe_path", False) else []
    del sys.path[: len(here)]
    importlib.import_module("steadytrain.cli.main")
    sys.path[:0] = here


if __name__ == "__main__":
    _imports()
    from steadytrain.cli.main import entry

    entry()

"""Print messages while a script trains: one line each, on stderr."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """Print one message on stderr, because stdout belongs to the script. An open tqdm bar keeps its line."""
    start = "\n" if _is_bar_open() else ""
    print(f"{start}steadytrain: {text}", file=sys.stderr, flush=True)


def _is_bar_open() -> bool:
    bars = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", ())
    return any(not getattr(bar, "disable", True) for bar in list(bars))

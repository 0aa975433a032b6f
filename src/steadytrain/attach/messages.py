"""Print messages while a script trains: one line each, on stderr."""

from __future__ import annotations

import contextlib
import sys

from steadytrain.core.visible_text import visible
from steadytrain.storage.redaction import redact_text


def tell(text: str) -> None:
    """Print one message on stderr, because stdout belongs to the script. An open tqdm bar keeps its line.

    A message that cannot be printed (stderr is closed or None, or its reader gone) is lost; the script goes on.
    """
    # Not by `print`: a script may have put a function of its own in its place, that prefixes or silences.
    with contextlib.suppress(Exception):
        start = "\n" if _is_bar_open() else ""
        sys.stderr.write(f"{start}steadytrain: {visible(redact_text(text))}\n")
        sys.stderr.flush()


def _is_bar_open() -> bool:
    bars = getattr(getattr(sys.modules.get("tqdm.std"), "tqdm", None), "_instances", ())
    return any(not getattr(bar, "disable", True) for bar in list(bars))

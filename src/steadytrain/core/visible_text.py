"""Text from a script or a stranger for a terminal, which obeys escape sequences: control characters are written out."""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    r"\r(?!\n)|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\u200e\u200f\u2028-\u202e\u2066-\u2069]"
)
"""Control characters except tab and line end, surrogates, and marks that reorder text."""


def visible(text: str) -> str:
    """``text`` with its control characters written out: ESC becomes ``\\x1b``."""
    return _UNSAFE.sub(lambda match: _written_out(match[0]), text)


def _written_out(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

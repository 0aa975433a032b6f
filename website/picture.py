"""Draws text of a terminal as an SVG that loads no font: `python website/picture.py < output.txt > picture.svg`.

A line that begins with ``$`` is a command; ``STOPPED``, ``confirmed`` and ``removed`` are marked.
"""

from __future__ import annotations

import io
import re
import sys

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

WIDTH = 104
MARKS = {r"^\$ .*$": "bold cyan", r"STOPPED|\bnan\b|NaN": "bold red", r"^confirmed.*$|\bremoved\b": "bold green"}
NOTE = re.compile(r"<!--.*?-->\s*")
FONT_FACE = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)


def picture(text: str) -> str:
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    drawn = Text(text.rstrip())
    for pattern, style in MARKS.items():
        drawn.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    console.print(drawn)
    own_fonts = NOTE.sub("", FONT_FACE.sub("", CONSOLE_SVG_FORMAT)).replace("Fira Code, monospace", "monospace")
    return console.export_svg(title="steadytrain", theme=MONOKAI, code_format=own_fonts)


if __name__ == "__main__":
    sys.stdout.write(picture(sys.stdin.read()))

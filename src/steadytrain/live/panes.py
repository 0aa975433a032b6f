"""The two lists of the picture, symptoms and layers: what the filter lets through, scrolled, with a heading."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from steadytrain.core.model import Severity
from steadytrain.live.layer_readings import LayerState
from steadytrain.live.picture import Picture, SymptomShown
from steadytrain.live.view import View
from steadytrain.report.wording import clean, count, number, step_range

STYLES: dict[Severity, str] = {"critical": "bold red", "warning": "bold yellow", "note": "bold"}
SIGNS: dict[Severity, str] = {"critical": "✗", "warning": "!", "note": "·"}
MESSAGE_LINES_MAX = 3
TALL = 12
"""A list with fewer lines shows one line of each message."""

NAME_MAX = 400
_INDENT = "  "
_COLUMNS = (("gradient", 10), ("peak/usual", 12), ("update/weight", 14))


@dataclass(frozen=True)
class Pane:
    """Lines to draw, with the heading; ``last_offset`` is how far the list can be scrolled."""

    name: str
    lines: tuple[Text, ...]
    last_offset: int


def symptom_pane(picture: Picture, view: View, width: int, height: int) -> Pane:
    """The symptoms, the newest first."""
    shown = [one for one in picture.symptoms if view.matches(one.symptom.name)]
    message_lines = MESSAGE_LINES_MAX if height >= TALL else 1
    rows = [line for one in shown for line in _symptom(one, width, message_lines)]
    total = sum(picture.counts.values())
    told = f"symptoms, newest first ({_of(len(shown), total)})"
    if not picture.symptoms:
        rows = [Text(f"{_INDENT}{'none so far' if not picture.is_over else 'none seen'}", style="dim")]
    return _pane("symptoms", told, rows, view, height)


def layer_pane(picture: Picture, view: View, width: int, height: int) -> Pane:
    """The layers, the worst first."""
    found = picture.layers
    shown = [layer for layer in found.layers if view.matches(layer.name)]
    at = f" at step {count(found.step)}" if found.step is not None else ""
    told = f"layers, worst first{at} ({_of(len(shown), found.total)})"
    if not found.layers:
        return _pane("layers", told, [Text(f"{_INDENT}no gradient norms yet", style="dim")], view, height)
    return _pane("layers", told, [_heading(width), *(_layer(layer, width) for layer in shown)], view, height, fixed=1)


def _pane(name: str, told: str, rows: Sequence[Text], view: View, height: int, *, fixed: int = 0) -> Pane:
    """``fixed`` rows stay in place when the others are scrolled."""
    room = max(0, height - 1 - fixed)
    moving = rows[fixed:]
    last = max(0, len(moving) - room)
    offset = min(view.offset(name), last)
    below = last - offset
    more = "" if not last else f"  {count(offset)} above, {count(below)} below"
    marker = "▶ " if view.pane == name else _INDENT
    heading = Text.assemble((f"{marker}{told}", "bold"), (more, "dim"))
    return Pane(name, (heading, *rows[:fixed], *moving[offset : offset + room])[:height], last)


def _of(shown: int, total: int) -> str:
    return count(total) if shown == total else f"{count(shown)} of {count(total)}"


def _symptom(shown: SymptomShown, width: int, message_lines: int) -> list[Text]:
    """Its name and steps, and its message in a few lines."""
    symptom = shown.symptom
    rank = f" (rank {shown.rank})" if shown.rank else ""
    style = STYLES.get(symptom.severity, "bold")
    head = Text.assemble(
        (f"{_INDENT}{SIGNS.get(symptom.severity, '?')} {symptom.severity} ", style),
        (clean(symptom.name), "bold"),
        f"{rank}  {step_range(symptom)}",
    )
    room = max(10, width - 2 * len(_INDENT))
    message = textwrap.wrap(clean(symptom.message), room, max_lines=message_lines, placeholder=" ...")
    return [head, *(Text(f"{_INDENT * 2}{line}", style="dim") for line in message)]


def _heading(width: int) -> Text:
    cells = "".join(title.rjust(size) for title, size in _COLUMNS)
    return Text(f"{_INDENT}{'parameter':<{_name_width(width)}}{cells}", style="dim")


def _layer(layer: LayerState, width: int) -> Text:
    room = _name_width(width)
    text = Text(f"{_INDENT}{_tail(clean(layer.name, length_max=NAME_MAX), room)}")
    if layer.nonfinite:
        text.append("NOT FINITE".rjust(_COLUMNS[0][1]), "bold red")
    else:
        gradient = number(layer.gradient_norm) if layer.gradient_norm is not None else "none"
        text.append(gradient.rjust(_COLUMNS[0][1]))
    peak = f"{layer.peak:.3g}" if layer.peak is not None else "-"
    ratio = f"{layer.update_ratio:.2g}" if layer.update_ratio is not None else "-"
    text.append(peak.rjust(_COLUMNS[1][1])).append(ratio.rjust(_COLUMNS[2][1]))
    return text


def _name_width(width: int) -> int:
    return max(12, width - len(_INDENT) - sum(size for _, size in _COLUMNS))


def _tail(name: str, room: int) -> str:
    """``name`` in ``room`` cells, its end kept: that is what tells layers apart."""
    while cell_len(name) > room - 1:
        name = f"…{name[2:]}" if name.startswith("…") else f"…{name[1:]}"
    return name + " " * (room - cell_len(name))

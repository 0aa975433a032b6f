"""Draws a picture as lines of a terminal: header, curves, precision, machine, symptoms, layers, keys.

Each line is plain text with styles of ours: no markup is read, so a hostile name is shown as it is. A state is never
told by colour alone. Not here: the terminal itself (``cli``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from steadytrain.core.model import Severity
from steadytrain.live import amounts
from steadytrain.live.dots import BAD, BAD_ASCII, Drawn, draw
from steadytrain.live.panes import Pane, layer_pane, symptom_pane
from steadytrain.live.picture import CurveShown, Device, Picture
from steadytrain.live.view import KEYS, View
from steadytrain.report.wording import count, number

WIDTH_MIN, HEIGHT_MIN = 60, 16
CURVES_BESIDE, LISTS_BESIDE = 110, 150
"""From this width on, two curves, or two lists, stand beside each other."""

STEPS_SHOWN_WITH = "loss"
"""The curve whose heading names the steps: all curves have the same."""

DEVICES_MAX = 4
SILENT_S_MIN = 3.0
DATA_WAIT_MIN = 0.01
HEADROOM_MIN = 0.01
"""Outputs below this share of their format's range are no concern, and are not named."""

FACT_LINES_MAX = 2
_LABEL_WIDTH = 11
_LABEL = "dim"
_SIGNS = {
    "running": ("▶", "bold green"),
    "finished": ("✓", "bold green"),
    "stopped": ("■", "bold red"),
    "failed": ("✗", "bold red"),
    "killed": ("✗", "bold red"),
}
_ASCII = str.maketrans({"▶": ">", "✓": "+", "■": "#", "✗": "x", "·": "|", "─": "-", "…": "~"})


@dataclass(frozen=True)
class Frame:
    """Where the picture is drawn. ``ascii_only`` is for terminals without Unicode; ``keys`` shows the line of keys."""

    width: int
    height: int
    ascii_only: bool = False
    keys: bool = True


def lines_of(picture: Picture, view: View, frame: Frame) -> tuple[list[Text], dict[str, int]]:
    """At most ``frame.height`` lines, and how far each pane can be scrolled."""
    width = max(frame.width, WIDTH_MIN)
    if view.help:
        return _fitted(_help(), frame), {}
    head = [_title(picture), _pace(picture)]
    facts = [*_labelled("precision", _precision(picture), width), *_labelled("machine", _machine(picture), width)]
    notes = [Text.assemble(("! ", "bold yellow"), note) for note in _notes(picture)]
    foot = [_keys(view)] if frame.keys else []
    left = frame.height - len(head) - len(facts) - len(notes) - len(foot)
    curves = _curves(picture, view, width, _curve_height(left, width), ascii_only=frame.ascii_only)
    body, ends = _panes(picture, view, width, left - len(curves))
    lines = [*head, *curves, *facts, *notes, *body][: frame.height - len(foot)]
    if frame.keys:  # the keys stand on the last line of the screen
        lines += [Text()] * (frame.height - len(foot) - len(lines))
    return _fitted([*lines, *foot], frame), ends


def summary_line(picture: Picture) -> str:
    """The run in one line."""
    pace, loss = picture.pace, next((curve for curve in picture.curves if curve.signal == "loss"), None)
    parts = [picture.name, picture.state]
    if pace.step is not None:
        parts.append(f"step {count(pace.step)}" + (f" of {count(pace.total)}" if pace.total is not None else ""))
    if loss is not None:
        parts.append(f"loss {number(loss.newest)}")
    if pace.steps_per_s and not picture.is_over:
        parts.append(amounts.pace(pace.steps_per_s))
    if pace.eta_s is not None:
        parts.append(f"{amounts.duration(pace.eta_s)} left")
    if pace.stalled and pace.silent_s is not None:
        parts.append(f"no step for {amounts.duration(pace.silent_s)}")
    return " · ".join([*parts, _found(picture)])


def _title(picture: Picture) -> Text:
    sign, style = _SIGNS.get(picture.state, ("?", "bold yellow"))
    status = f" (exit status {picture.exit_status})" if picture.exit_status is not None else ""
    text = Text.assemble((f"{sign} {picture.state}{status}", style), "  ", (picture.name, "bold"))
    worst: Severity | None = next((one for one in ("critical", "warning") if picture.counts.get(one)), None)
    text.append("  ")
    text.append(_found(picture), {"critical": "bold red", "warning": "bold yellow"}.get(worst or "", "green"))
    return text


def _found(picture: Picture) -> str:
    """How many symptoms and incidents there are. Silence is not health, so it says what was looked for at all."""
    parts = [f"{picture.counts[name]} {name}" for name in ("critical", "warning", "note") if picture.counts.get(name)]
    if picture.incidents:
        parts.append(f"{len(picture.incidents)} incident{'s' if len(picture.incidents) > 1 else ''}")
    if parts:
        return ", ".join(parts)
    return "no symptom seen" if picture.pace.step is not None else "no step yet"


def _pace(picture: Picture) -> Text:
    pace = picture.pace
    if pace.step is None:
        return Text.assemble(("waiting for the first step of ", _LABEL), picture.command or picture.path)
    text = Text.assemble(("step ", _LABEL), (count(pace.step), "bold"))
    if pace.total is not None:
        done = f" ({pace.step / pace.total:.0%})" if pace.total else ""
        text.append(f" of {count(pace.total)}{done}")
    if pace.steps_per_s is not None:
        text.append(f"  {amounts.pace(pace.steps_per_s)}")
    if pace.eta_s is not None:
        text.append(f"  {amounts.duration(pace.eta_s)} left")
    if pace.stalled and pace.silent_s is not None:
        text.append(f"  NO STEP FOR {amounts.duration(pace.silent_s)}", "bold yellow")
    elif pace.silent_s is not None and pace.silent_s >= SILENT_S_MIN:
        text.append(f"  last step {amounts.duration(pace.silent_s)} ago")
    if picture.learning_rate is not None:
        text.append(f"  lr {number(picture.learning_rate)}")
    return text


def _curve_height(left: int, width: int) -> int:
    """Rows of a curve: the curves take two fifths of what is left."""
    beside = 1 if width >= CURVES_BESIDE else 2
    return max(1, min(8, 2 * left // 5 // beside))


def _curves(picture: Picture, view: View, width: int, height: int, *, ascii_only: bool) -> list[Text]:
    if width < CURVES_BESIDE:
        return [line for curve in picture.curves for line in _curve(curve, view, width, height, ascii_only=ascii_only)]
    half = (width - 2) // 2
    drawn = [_curve(curve, view, half, height, ascii_only=ascii_only) for curve in picture.curves]
    return beside(drawn, half)


def _curve(curve: CurveShown, view: View, width: int, height: int, *, ascii_only: bool) -> list[Text]:
    held = curve.recent if view.zoomed else curve.whole
    drawn = draw(held, width, height, ascii_only=ascii_only)
    head = Text.assemble((f"{curve.title} ", _LABEL), (number(curve.newest), "bold"), (_scale(drawn), _LABEL))
    if drawn.bad:
        head.append(f"  {drawn.bad:,} not finite", "bold red")
    if curve.signal == STEPS_SHOWN_WITH:
        head.append(f"  steps {count(held.first_step)} to {count(held.last_step)}", _LABEL)
    return [head, *(_crossed(line) for line in drawn.lines)]


def _scale(drawn: Drawn) -> str:
    if drawn.smallest is None or drawn.largest is None:
        return ""
    scale = ", log scale" if drawn.logarithmic else ""
    return f"  from {number(drawn.smallest)} to {number(drawn.largest)}{scale}"


def _crossed(line: str) -> Text:
    text = Text(line, style="cyan")
    text.highlight_words([BAD, BAD_ASCII], "bold red")
    return text


def _labelled(label: str, parts: Sequence[str], width: int) -> list[Text]:
    """The parts behind a label, on as many lines as they need and ``FACT_LINES_MAX`` allows; none without parts."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= width - _LABEL_WIDTH:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    labels = [label, *[""] * len(lines)]
    return [
        Text.assemble((f"{label:<{_LABEL_WIDTH}}", _LABEL), _warned(line))
        for label, line in zip(labels, lines[:FACT_LINES_MAX], strict=False)
    ]


def _warned(line: str) -> Text:
    text = Text(line)
    text.highlight_regex(r"SLOWED BY [A-Z]+", "bold yellow")
    return text


def _precision(picture: Picture) -> list[str]:
    found, layers = picture.precision, picture.layers
    parts = []
    if found.loss_scale is not None:
        skips = f" ({count(found.scaler_skips)} steps skipped)" if found.scaler_skips else ""
        parts.append(f"loss scale {found.loss_scale:,.6g}{skips}")
    if found.overflow_share:
        parts.append(f"{amounts.share(found.overflow_share)} of gradients not finite")
    if found.underflow_share:
        parts.append(f"{amounts.share(found.underflow_share)} of gradients underflow")
    if found.clip_count is not None:
        parts.append(f"clipped {count(found.clip_count)} times")
    if layers.headroom is not None and layers.headroom[1] >= HEADROOM_MIN:
        name, value = layers.headroom
        parts.append(f"largest output {amounts.share(value)} of its format ({name or 'the model'})")
    if layers.unchanged is not None and layers.unchanged[1] > 0:
        parts.append(f"{amounts.share(layers.unchanged[1])} of updates lost ({layers.unchanged[0]})")
    return parts


def _machine(picture: Picture) -> list[str]:
    # Accelerators first: what slows a run down is mostly there.
    devices = sorted(picture.devices, key=lambda device: device.name == "host")
    parts = [part for part in map(_device, devices[:DEVICES_MAX]) if part]
    wait = picture.pace.data_wait_share
    if wait is not None and wait >= DATA_WAIT_MIN:
        parts.append(f"{amounts.share(wait)} of the time waits for data")
    return [*parts, f"{len(devices) - DEVICES_MAX} more"] if len(devices) > DEVICES_MAX else parts


def _device(device: Device) -> str:
    values = device.values
    parts = []
    busy = values.get("busy_share", values.get("cpu_busy_share"))
    if busy is not None:
        parts.append(f"{amounts.share(busy)} busy")
    if "memory_used_bytes" in values and "memory_total_bytes" in values:
        used, total = amounts.gigabytes(values["memory_used_bytes"]), amounts.gigabytes(values["memory_total_bytes"])
        parts.append(f"{used} of {total} GiB")
    if "process_memory_bytes" in values:
        parts.append(f"uses {amounts.gigabytes(values['process_memory_bytes'])} GiB")
    if "available_memory_bytes" in values:
        parts.append(f"{amounts.gigabytes(values['available_memory_bytes'])} GiB free")
    if "temperature_c" in values:
        parts.append(f"{values['temperature_c']:.0f} C")
    if "disk_free_bytes" in values:
        parts.append(f"disk {amounts.gigabytes(values['disk_free_bytes'])} GiB free")
    slowed = [name for name in ("power", "heat", "hardware") if values.get(f"slowed_by_{name}")]
    parts += [f"SLOWED BY {name.upper()}" for name in slowed]
    return f"{device.name} {', '.join(parts)}" if parts else ""


def _notes(picture: Picture) -> list[str]:
    found = list(picture.notes)
    if picture.state == "killed":
        found.insert(0, "the process of this run is gone, and it did not record how it ended")
    if picture.state == "not recorded":
        found.insert(0, "this run does not record how it ended: it runs on another machine, or was killed there")
    if picture.last_action:
        found.append(f"{count(picture.actions)} actions of steadytrain, the last: {picture.last_action}")
    if picture.ranks:
        found.append(f"{picture.ranks} more processes; symptoms are of all, curves of the first")
    return found[:3]


def _panes(picture: Picture, view: View, width: int, height: int) -> tuple[list[Text], dict[str, int]]:
    if height < 2:
        return [], {}
    if width >= LISTS_BESIDE:
        half = (width - 2) // 2
        panes = [symptom_pane(picture, view, half, height), layer_pane(picture, view, half, height)]
        return beside([pane.lines for pane in panes], half), _ends(panes)
    # The list that is chosen gets two thirds.
    room = height // 3 if view.pane == "layers" else 2 * height // 3
    symptoms = symptom_pane(picture, view, width, max(2, room))
    layers = layer_pane(picture, view, width, max(2, height - len(symptoms.lines)))
    return [*symptoms.lines, *layers.lines], _ends([symptoms, layers])


def _ends(panes: Sequence[Pane]) -> dict[str, int]:
    return {pane.name: pane.last_offset for pane in panes}


def beside(blocks: Sequence[Sequence[Text]], width: int) -> list[Text]:
    """Blocks of lines next to each other, each ``width`` wide, with two blanks between."""
    lines = []
    for place in range(max(map(len, blocks), default=0)):
        line = Text(no_wrap=True)
        for block in blocks:
            cell = block[place].copy() if place < len(block) else Text()
            cell.truncate(width, overflow="ellipsis", pad=True)
            line.append("  " if line else "").append_text(cell)
        lines.append(line)
    return lines


def _keys(view: View) -> Text:
    if view.typing:
        return Text.assemble(("filter: ", "bold"), view.filter, ("_", "blink"), ("   Enter keeps, Esc clears", _LABEL))
    state = Text()
    if view.paused:
        state.append("PAUSED ", "bold yellow")
    if view.filter:
        state.append(f"filter: {view.filter} ", "bold")
    state.append("q quit · space pause · z zoom · / filter · Tab list · up down scroll · ? help", _LABEL)
    return state


def _help() -> list[Text]:
    rows = [Text.assemble((f"  {keys:<16}", "bold"), what) for keys, what in KEYS]
    return [Text("Keys", style="bold"), Text(), *rows, Text(), Text("Any key goes back.", style=_LABEL)]


def _fitted(lines: Sequence[Text], frame: Frame) -> list[Text]:
    fitted = []
    for line in lines[: frame.height]:
        cut = line.copy()
        if frame.ascii_only:
            cut.plain = cut.plain.translate(_ASCII).encode("ascii", "replace").decode()
        cut.truncate(frame.width, overflow="ellipsis" if not frame.ascii_only else "crop")
        cut.no_wrap = True
        fitted.append(cut)
    return fitted

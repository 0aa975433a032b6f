"""How a person looks at the picture: what is scrolled, filtered, paused. Each key gives a new view."""

from __future__ import annotations

from dataclasses import dataclass, replace

PANES = ("symptoms", "layers")
FILTER_LENGTH_MAX = 60
PAGE = 10
_MOVES = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -PAGE, "page-down": PAGE, "b": -PAGE, "f": PAGE}

KEYS = (
    ("q, Ctrl-C", "quit; the last picture stays on the screen"),
    ("space, p", "pause: hold the picture; the run is not touched"),
    ("z", "curves of the whole run, or of its last steps"),
    ("/", "show only symptoms and layers with a text in their names; Enter keeps it, Esc clears it"),
    ("Tab", "choose the list that scrolls: symptoms or layers"),
    ("up down, j k", "scroll by a line"),
    ("PgUp PgDn, b f", "scroll by ten lines"),
    ("g, G", "first and last line"),
    ("?, h", "this help"),
)


@dataclass(frozen=True)
class View:
    """``offsets`` are the first shown line of each pane. ``typing`` is True while a filter is being typed."""

    pane: str = PANES[0]
    offsets: tuple[int, int] = (0, 0)
    filter: str = ""
    typing: bool = False
    paused: bool = False
    zoomed: bool = False
    help: bool = False
    quit: bool = False

    def offset(self, pane: str) -> int:
        return self.offsets[PANES.index(pane)]

    def matches(self, text: str) -> bool:
        """Whether the filter lets ``text`` through."""
        return self.filter.lower() in text.lower()


END = 1 << 30
"""An offset beyond any list: the drawing stops at the last line."""


def pressed(view: View, key: str) -> View:
    """The view after a key. Keys are single characters, or names such as ``up``, ``enter``, ``escape``."""
    if view.typing:
        return _typed(view, key)
    if view.help:
        return replace(view, help=False, quit=key == "q")
    if key in _MOVES:
        return _scrolled(view, view.offset(view.pane) + _MOVES[key])
    if key in ("g", "home"):
        return _scrolled(view, 0)
    if key in ("G", "end"):
        return _scrolled(view, END)
    changes = {
        "q": {"quit": True},
        " ": {"paused": not view.paused},
        "p": {"paused": not view.paused},
        "z": {"zoomed": not view.zoomed},
        "/": {"typing": True, "filter": "", "offsets": (0, 0)},
        "escape": {"filter": "", "offsets": (0, 0)},
        "tab": {"pane": PANES[1 - PANES.index(view.pane)]},
        "?": {"help": True},
        "h": {"help": True},
    }
    return replace(view, **changes.get(key, {}))  # type: ignore[arg-type]


def held(view: View, lines: dict[str, int]) -> View:
    """The view with its offsets inside lists whose last offsets are ``lines``."""
    symptoms, layers = (min(view.offset(pane), lines.get(pane, 0)) for pane in PANES)
    return replace(view, offsets=(symptoms, layers))


def _typed(view: View, key: str) -> View:
    if key == "enter":
        return replace(view, typing=False)
    if key == "escape":
        return replace(view, typing=False, filter="")
    if key == "backspace":
        return replace(view, filter=view.filter[:-1])
    if len(key) == 1 and key.isprintable():
        return replace(view, filter=(view.filter + key)[:FILTER_LENGTH_MAX])
    return view


def _scrolled(view: View, offset: int) -> View:
    symptoms, layers = (max(0, offset) if pane == view.pane else view.offset(pane) for pane in PANES)
    return replace(view, offsets=(symptoms, layers))

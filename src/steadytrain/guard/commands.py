"""The commands of ``steadytrain ctl``, as text and as values. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

from steadytrain.core.errors import UsageError
from steadytrain.core.levels import find_level
from steadytrain.core.plugins import nearest
from steadytrain.guard.intervention import Setting, kinds

Verb = Literal["apply", "revert", "snapshot", "capture", "level", "pause", "resume", "stop", "status"]
PLAIN: tuple[Verb, ...] = ("snapshot", "pause", "resume", "stop", "status")
SYNTAX = (
    "lr*FACTOR, lr=VALUE, lr off, clip LEVEL, clip off, apply INTERVENTION [SETTING=VALUE ...], revert INTERVENTION, "
    "snapshot, capture STEPS, level NAME, pause, resume, stop, status"
)
CAPTURE_MAX = 1000
RATE, CLIP = "set-learning-rate", "clip"


@dataclass(frozen=True)
class Command:
    """``name`` is an intervention or a level, ``settings`` are those of the intervention, ``steps`` of a capture."""

    verb: Verb
    name: str = ""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    steps: int = 0

    @property
    def touches(self) -> bool:
        """Whether it changes the training."""
        return self.verb in ("apply", "revert", "stop")


def parse_command(text: str) -> Command:
    """The command that ``text`` says.

    Raises:
        UsageError: there is no such command, or a value is wrong.
    """
    words = text.split()
    verb = words[0] if words else ""
    if verb in PLAIN and len(words) == 1:
        return Command(verb)
    if verb.startswith("lr"):
        return _rate("".join(words)[2:], text)
    if verb == "clip" and len(words) == 2:
        if words[1] == "off":
            return Command("revert", CLIP)
        return Command("apply", CLIP, {"level": _number(words[1], text)})
    if verb == "level" and len(words) == 2:
        return Command("level", find_level(words[1]).name)
    if verb == "capture" and len(words) == 2:
        if not words[1].isdecimal() or not 1 <= int(words[1]) <= CAPTURE_MAX:
            raise UsageError(f"{text!r}: capture takes a number of steps from 1 to {CAPTURE_MAX}")
        return Command("capture", steps=int(words[1]))
    if verb == "revert" and len(words) == 2:
        return Command("revert", _intervention(words[1]))
    if verb == "apply" and len(words) > 1:
        return Command("apply", _intervention(words[1]), _settings(words[1], words[2:], text))
    raise UsageError(f"{text!r}: no such command; one of {SYNTAX}")


def _rate(rest: str, text: str) -> Command:
    if rest in ("off", "reset"):
        return Command("revert", RATE)
    if rest[:1] == "*":
        return Command("apply", RATE, {"factor": _number(rest[1:], text)})
    if rest[:1] == "=":
        return Command("apply", RATE, {"value": _number(rest[1:], text)})
    raise UsageError(f"{text!r}: the learning rate is set by lr*FACTOR or lr=VALUE, and given back by lr off")


def _number(word: str, text: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise UsageError(f"{text!r}: {word!r} is no number above 0")
    return number


def _intervention(name: str) -> str:
    if name not in kinds():
        raise UsageError(f"{name!r}: no such intervention; {nearest(name, kinds())}")
    return name


def _settings(name: str, words: Sequence[str], text: str) -> dict[str, Setting]:
    found: dict[str, Setting] = {}
    texts = {one.name for one in fields(kinds()[name]) if isinstance(one.default, str)}  # type: ignore[arg-type]
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{text!r}: {word!r} is no SETTING=VALUE")
        if key.replace("-", "_") in texts:
            found[key.replace("-", "_")] = value
            continue
        try:
            number = float(value)
        except ValueError:
            raise UsageError(f"{text!r}: {value!r} is no number") from None
        found[key.replace("-", "_")] = int(number) if number.is_integer() and "." not in value else number
    try:
        kinds()[name](**found).check()
    except (TypeError, ValueError) as error:
        raise UsageError(f"{text!r}: {str(error).rpartition('__init__() ')[2]}") from None
    return found

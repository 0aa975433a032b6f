"""Differences between two states: missing, swapped, reshaped, cast, stale, changed.

``expected`` is the run's state (or a trusted checkpoint), ``found`` the checkpoint under audit. If they are of
different steps, values have to differ: the comparison then covers only what must not change between steps, and reports
as stale what should have changed but did not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from steadytrain.compare.checkpoint_contents import CheckpointContents, Values
from steadytrain.compare.tensor_differences import Difference, compare_tensors
from steadytrain.core.json_values import JsonValue

OWN = "steadytrain"
"""Kind of a state that steadytrain wrote."""

_MOVING_SETTINGS = ("lr", "step", "momentum_step", "k", "scheduled_lr", "weight_sum", "lr_max")
CYCLE_MARK = "base_momentum"
"""Marks a parameter group whose momentum, or first beta, OneCycleLR or CyclicLR changes."""

_MOVING_SCHEDULER = ("last_epoch", "_step_count", "_last_lr", "_get_lr_called_within_step", "num_bad_epochs", "best")
_UNTOLD = ("_get_lr_called_within_step", "_is_initial", "verbose", "_warned", "foreach", "fused", "capturable")
"""Implementation choices of optimizers and internal notes of schedulers. They are not part of the training state."""


@dataclass(frozen=True)
class Part(JsonValue, keys="part:name held expected agree"):
    """The comparison of one part: the numbers of ``held`` and ``expected`` entries (None: not read), and how many
    agree.
    """

    name: str
    held: int | None
    expected: int | None
    agree: int


@dataclass(frozen=True)
class Compared:
    """All parts and all differences, in the order of ``PARTS``."""

    parts: tuple[Part, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]


def compare(
    found: CheckpointContents, expected: CheckpointContents, *, others: Sequence[CheckpointContents] = ()
) -> Compared:
    """Compare ``found`` with ``expected``. ``others`` are states of the same run at other steps, to recognize stale
    values.
    """
    same_step = found.step is None or expected.step is None or found.step == expected.step
    notes = []
    if not same_step:
        notes.append(
            f"the steps differ ({found.step} here, {expected.step} there): values are expected to differ, "
            "and only what must not change between steps is compared"
        )
    parts, differences = [], []

    def add(part: str, held: Any, wanted: Any, result: list[Difference]) -> None:
        counted = [None if side is None else len(side) for side in (held, wanted)]
        at_fault = len({difference.name for difference in result if difference.kind != "unexpected"})
        agree = max(0, (counted[1] or 0) - at_fault) if held and wanted else 0
        parts.append(Part(part, counted[0], counted[1], agree))
        differences.extend(result)

    for part in ("weights", "moments"):
        held, wanted = getattr(found, part), getattr(expected, part)
        if held and wanted:
            older = [(other.step, tensors) for other in others if (tensors := getattr(other, part))]
            result = compare_tensors(part, held, wanted, same_step=same_step, older=older)
            if part == "weights":
                result = [difference for difference in result if not _no_loss(difference, found, expected)]
        else:
            result = _missing_part(part, held, wanted)
        add(part, held, wanted, result)
    add("counters", found.counters, expected.counters, _counters(found, expected, same_step=same_step))
    ours, theirs = _groups_by_name(found.settings), _groups_by_name(expected.settings)
    add("settings", ours, theirs, _settings(ours, theirs, same_step=same_step))
    for part, moving in (("scheduler", _MOVING_SCHEDULER), ("scaler", ("scale", "_growth_tracker"))):
        ours, theirs = _flat(getattr(found, part)), _flat(getattr(expected, part))
        add(part, ours, theirs, _values(part, ours, theirs, ignored=() if same_step else moving))
    random = _random(found.random, expected.random, same_step=same_step)
    add("random", found.random, expected.random, [difference for difference in random if difference.kind != "missing"])
    # Most loops save no random state and train well, so this is a note and not a fault.
    without = [difference.name for difference in random if difference.kind == "missing"]
    if without:
        notes.append(
            f"no random state of {', '.join(without)} in the checkpoint: a resumed run draws other random numbers"
        )
    if expected.position and found.position == {}:
        notes.append("the checkpoint records neither its step nor its position in the data")
    add("position", found.position, expected.position, _position(found.position, expected.position, same_step))
    return Compared(tuple(parts), tuple(differences), tuple(notes))


def _no_loss(difference: Difference, found: CheckpointContents, expected: CheckpointContents) -> bool:
    """Whether a weight may be missing: from an adapter, or an untrained tensor if steadytrain wrote ``expected``."""
    if difference.kind != "missing":
        return False
    trained = {name for group in expected.settings or () for name in group.get("parameters", ())}
    return found.partial or (expected.kind == OWN and difference.name not in trained)


def plainly(value: Any) -> str:
    """A setting as text. 1.0 equals 1, and a list equals a tuple."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, (int, float)):
        return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(plainly, value))}]"
    return str(value)[:200]


def _missing_part(part: str, held: Any, wanted: Any) -> list[Difference]:
    """A whole part that the run had and the checkpoint lacks. A part that its format cannot hold does not count."""
    if held is None or held or not wanted:
        return []
    return [Difference(part, part, "missing", f"no {part} in the checkpoint", f"{len(wanted)} entries", None)]


def _counters(found: CheckpointContents, expected: CheckpointContents, *, same_step: bool) -> list[Difference]:
    held, wanted = found.counters, expected.counters
    if not held or not wanted:
        return _missing_part("counters", held, wanted)
    shift = 0 if same_step else (found.step or 0) - (expected.step or 0)
    differences = []
    for name, count in wanted.items():
        if name not in held:
            message = f"{name}: no step counter"
            differences.append(Difference("counters", name, "missing", message, plainly(count), None))
        elif held[name] != count + shift:
            message = f"{name}: updated {plainly(held[name])} times by its counter, {plainly(count + shift)} expected"
            told = plainly(count + shift), plainly(held[name])
            differences.append(Difference("counters", name, "stale", message, *told))
    return differences


def _groups_by_name(groups: Sequence[Values] | None) -> dict[str, Any] | None:
    if groups is None:
        return None
    several = len(groups) > 1
    return {
        f"group {number}: {name}" if several else name: value
        for number, group in enumerate(groups)
        for name, value in group.items()
        if name not in ("params", "param_names")
    }


def _settings(found: Values | None, expected: Values | None, *, same_step: bool) -> list[Difference]:
    if not found or not expected:
        return _missing_part("settings", found, expected)
    differences = []
    for name, wanted in expected.items():
        setting = name.rpartition(": ")[2]
        if setting in _UNTOLD or (setting in _MOVING_SETTINGS and not same_step):
            continue
        if name not in found:
            if wanted not in (None, False, [], {}):  # a newer torch has a default for these
                message = f"{name}: not in the checkpoint"
                differences.append(Difference("settings", name, "missing", message, plainly(wanted), None))
        elif setting == "parameters":
            differences += _order(name, found[name], wanted)
        elif plainly(found[name]) != plainly(wanted):
            if not same_step and _cycled(name, found, expected):
                continue
            message = f"{name}: {plainly(found[name])} here, {plainly(wanted)} expected"
            told = plainly(wanted), plainly(found[name])
            differences.append(Difference("settings", name, "changed", message, *told))
    return differences


def _cycled(name: str, found: Values, expected: Values) -> bool:
    """Whether the difference is only what a momentum-cycling scheduler changes: momentum, or Adam's first beta."""
    group, setting = name.removesuffix(name.rpartition(": ")[2]), name.rpartition(": ")[2]
    if f"{group}{CYCLE_MARK}" not in found or f"{group}{CYCLE_MARK}" not in expected:
        return False
    if setting == "betas":
        ours, theirs = found[name], expected[name]
        pairs = isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple))
        return pairs and plainly(ours[1:]) == plainly(theirs[1:])
    return setting == "momentum"


def _order(name: str, found: Any, wanted: Any) -> list[Difference]:
    """The parameters of a group, in the order that assigns an optimizer's state to them."""
    if not isinstance(found, (list, tuple)) or not isinstance(wanted, (list, tuple)):
        return []
    if list(found) == list(wanted):
        return []
    if sorted(found) == sorted(wanted):
        first = next(index for index, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
        message = f"{name}: another order from position {first} on ({found[first]} where {wanted[first]} is expected)"
        return [Difference("settings", name, "swapped", message, str(wanted[first]), str(found[first]))]
    lost = [parameter for parameter in wanted if parameter not in found]
    more = [parameter for parameter in found if parameter not in wanted]
    message = f"{name}: {len(found)} here, {len(wanted)} expected" + (f"; without {lost[0]}" if lost else "")
    return [Difference("settings", name, "changed", message, ", ".join(lost[:4]) or None, ", ".join(more[:4]) or None)]


def _flat(value: Any) -> dict[str, Any] | None:
    """Nested plain values under dotted names."""
    if not value:
        return None if value is None else {}
    found: dict[str, Any] = {}

    def walk(name: str, node: Any) -> None:
        if isinstance(node, Mapping):
            for key, entry in node.items():
                walk(f"{name}.{key}" if name else str(key), entry)
        elif isinstance(node, (list, tuple)) and any(isinstance(entry, (Mapping, list, tuple)) for entry in node):
            for index, entry in enumerate(node):
                walk(f"{name}.{index}" if name else str(index), entry)
        else:
            found[name] = node

    walk("", value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value)
    return found


def _values(part: str, found: Values | None, expected: Values | None, *, ignored: Sequence[str]) -> list[Difference]:
    if not found or not expected:
        return _missing_part(part, found, expected)
    differences = []
    for name, wanted in expected.items():
        last = next((piece for piece in reversed(name.split(".")) if not piece.isdigit()), name)
        if last in ignored or last in _UNTOLD:
            continue
        if name not in found:
            message = f"{part}: {name}: not in the checkpoint"
            differences.append(Difference(part, name, "missing", message, plainly(wanted), None))
        elif plainly(found[name]) != plainly(wanted):
            moving = last in _MOVING_SCHEDULER
            message = f"{part}: {name} is {plainly(found[name])}, {plainly(wanted)} expected"
            told = plainly(wanted), plainly(found[name])
            differences.append(Difference(part, name, "stale" if moving else "changed", message, *told))
    return differences


def _random(
    found: Mapping[str, str] | None, expected: Mapping[str, str] | None, *, same_step: bool
) -> list[Difference]:
    if found is None or expected is None:
        return []
    differences = []
    for name, digest in expected.items():
        if name not in found:
            message = f"random state of {name}: not in the checkpoint"
            differences.append(Difference("random", name, "missing", message, digest, None))
        elif same_step and found[name] != digest:
            message = f"random state of {name}: differs from the run's"
            differences.append(Difference("random", name, "changed", message, digest, found[name]))
    return differences


def _position(found: Values | None, expected: Values | None, same_step: bool) -> list[Difference]:
    if not found or not expected or not same_step:
        return []
    return [
        Difference(
            "position",
            name,
            "stale",
            f"{name}: {plainly(found[name])} here, {plainly(wanted)} expected",
            plainly(wanted),
            plainly(found[name]),
        )
        for name, wanted in expected.items()
        if name in found and plainly(found[name]) != plainly(wanted)
    ]

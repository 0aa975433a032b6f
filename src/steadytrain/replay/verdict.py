"""What replays of a run say: exact, or the first thing that differs, and of what kind that is.

Works on result documents of replays (``replay/from_script.py`` makes them) and on two traces of the first differing
step; runs nothing itself and needs no torch. The rule:

- two replays differ from each other: their traces name the first operation that gave other bits from the same input (a
  nondeterministic operation), or what came in from outside (a clock, a generator, data); where the traces agree, it was
  transient;
- both are the same, but not what was recorded: the environment was changed, and the changes are listed; where there is
  none, the recorded run had something that is neither recorded nor repeatable, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import JsonValue
from steadytrain.replay.determinism import MEMORY, switch_for
from steadytrain.replay.trace_comparison import Part

SCHEMA = "steadytrain.replay/1"

Kind = Literal["transient", "nondeterministic-operation", "environment-changed", "outside-value", "unknown"]

CLEAN_STATUS, SYMPTOM_STATUS, CANNOT_TELL_STATUS = 0, 1, 125
"""As ``git bisect run`` wants them."""

SEED = "give the generator a fixed seed before training: generator.manual_seed(...)"


@dataclass(frozen=True)
class Difference(JsonValue):
    """The first thing that differs: ``phase`` is batch, random, forward, backward, communication or optimizer."""

    step: int
    phase: str
    tensor: str
    recorded: str
    replayed: str


@dataclass(frozen=True)
class Replayed(JsonValue):
    """What one replay gave. ``symptom`` is None where it could not be looked at (or there is none to look for)."""

    from_step: int
    until_step: int
    steps: int
    first_difference: Difference | None
    symptom: bool | None
    script_batches_equal: bool | None
    notes: tuple[str, ...] = ()

    @property
    def exact(self) -> bool:
        return self.first_difference is None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Replayed:
        """The value of a result document.

        Raises:
            UsageError: it is none.
        """
        try:
            return super().from_json(data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"not a result of a replay ({error!r})") from None


@dataclass(frozen=True)
class Judgement:
    """``kind`` is None where all replays were exact. ``why`` says in one sentence what the kind rests on."""

    kind: Kind | None
    why: str
    operation: Mapping[str, Any] | None = None
    switch: str | None = None
    changed: tuple[str, ...] = ()


def judge(
    replays: Sequence[Replayed], *, changed: Sequence[str], traced: bool = False, part: Part | None = None
) -> Judgement:
    """The kind of what differs. ``part`` is where two traces of that step part; ``traced`` whether there are two."""
    changed = tuple(changed)
    if all(replay.exact for replay in replays):
        return Judgement(None, "every replayed step was the same to the last bit", changed=changed)
    times = f"{len(replays)} replays"
    if part is not None:
        found = _of_part(part, changed)
        if differ(replays) or not changed or found.kind == "outside-value":
            return found
    if differ(replays):
        why = f"{times} differ from each other"
        if traced:
            why += ", but the replays that were traced operation by operation did not: the difference comes and goes"
        return Judgement("transient", why, changed=changed)
    if changed:
        return Judgement(
            "environment-changed", _alike(replays, "something was changed since the recording"), None, None, changed
        )
    return Judgement(
        "unknown", _alike(replays, "the recorded run had something that is not recorded or not repeatable")
    )


def differ(replays: Sequence[Replayed]) -> bool:
    """Whether the replays came to different bits. Each is compared with the recording, and so with the others."""
    return len({_came_to(replay) for replay in replays}) > 1


def earliest(replays: Sequence[Replayed]) -> Difference | None:
    """The first difference of all replays."""
    found = [replay.first_difference for replay in replays if replay.first_difference is not None]
    return min(found, key=lambda difference: difference.step, default=None)


def status(replays: Sequence[Replayed], *, looked_for: bool) -> int:
    """The exit status: 1 the symptom came (in any replay), 0 it did not, 125 it cannot be told.

    Where there is no symptom to look for (a run without an incident) a step that differs is what is looked for.
    """
    if not looked_for:
        return CLEAN_STATUS if all(replay.exact for replay in replays) else SYMPTOM_STATUS
    if any(replay.symptom for replay in replays):
        return SYMPTOM_STATUS
    return CANNOT_TELL_STATUS if any(replay.symptom is None for replay in replays) else CLEAN_STATUS


def document(
    incident: str, replays: Sequence[Replayed], judgement: Judgement, *, looked_for: bool = True
) -> dict[str, Any]:
    """The ``steadytrain.replay/1`` document."""
    first = earliest(replays)
    symptoms = [replay.symptom if looked_for else None for replay in replays]
    batches = [replay.script_batches_equal for replay in replays if replay.script_batches_equal is not None]
    return {
        "schema": SCHEMA,
        "incident": incident,
        "from_step": replays[0].from_step,
        "until_step": replays[0].until_step,
        "steps": min(replay.steps for replay in replays),
        "times": len(replays),
        "exact": first is None,
        "symptom": True if True in symptoms else None if None in symptoms else False,
        "first_difference": None if first is None else first.to_json(),
        "kind": judgement.kind,
        "why": judgement.why,
        "operation": None if judgement.operation is None else dict(judgement.operation),
        "switch": judgement.switch,
        "changed": list(judgement.changed),
        "script_batches_equal": all(batches) if batches else None,
        "notes": list(dict.fromkeys(note for replay in replays for note in replay.notes)),
    }


def lines(result: Mapping[str, Any]) -> list[str]:
    """A result document for a person."""
    first, count = result["first_difference"], result["steps"]
    asked = result["until_step"] - result["from_step"] + 1
    times = f", {result['times']} times" if result["times"] > 1 else ""
    told = [f"replay of steps {result['from_step']} to {result['until_step']}{times}"]
    if first is None:
        told.append(_line("exact", f"{count} of {asked} steps, to the last bit"))
    else:
        told.append(
            _line(
                "not exact",
                f"{first['step'] - result['from_step']} of {asked} steps; first different at step {first['step']}",
            )
        )
        told.append(_line("first difference", f"{first['phase']}: {first['tensor']}"))
        told.append(_line("", f"recorded {first['recorded']}, replayed {first['replayed']}"))
        told.append(_line("kind", f"{(result['kind'] or 'unknown').replace('-', ' ')}: {result['why']}"))
    operation = result["operation"]
    if operation is not None:
        module = f" in {operation['module']}" if operation.get("module") else ""
        told.append(_line("operation", f"{operation['operation']}{module} ({operation.get('phase')})"))
        if operation.get("file"):
            told.append(
                _line("", f"{operation['file']}:{operation['line']}: {operation.get('code') or ''}".rstrip(": "))
            )
    if result["switch"] is not None:
        told.append(_line("switch", result["switch"]))
    told += [_line("changed" if number == 0 else "", change) for number, change in enumerate(result["changed"])]
    if result["symptom"] is not None:
        told.append(_line("symptom", "came again" if result["symptom"] else "did not come"))
    if result["script_batches_equal"] is False:
        told.append(_line("batches", "the script came with other batches than recorded; the recorded ones were used"))
    return told + [_line("note", note) for note in result["notes"]]


def _line(name: str, text: str) -> str:
    return f"  {name:<20} {text}"


def _of_part(part: Part, changed: tuple[str, ...]) -> Judgement:
    operation = part.operation
    if operation is None:
        return Judgement("unknown", "the traces differ, but no operation stands there", changed=changed)
    what = {
        "operation": operation.name,
        **{name: operation.place.get(name) for name in ("phase", "module", "file", "line", "code")},
        "device": operation.device,
        "value": part.value,
        "one": part.one,
        "other": part.other,
        "operations_before": part.same_before,
    }
    if part.parting == "operation" and not operation.random:
        why = "the operation gave other bits from the same input"
        return Judgement("nondeterministic-operation", why, what, switch_for(operation.name, operation.device), changed)
    if part.parting == "memory":
        why = "the operation read memory that nobody had written"
        return Judgement("nondeterministic-operation", why, what, MEMORY, changed)
    reasons = {
        "operation": "the operation drew other random numbers from the same state of its generator",
        "generator": "it drew from a random generator that was in another state: its seed is not the script's",
        "number": f"its argument {part.value} was another number, {part.one} and {part.other}: a clock, a file",
        "outside": f"the tensor {part.value} came in different, and no operation of torch had made it so (a NumPy "
        "generator, a clock, a file, or a kernel that is called past torch)",
        "path": f"the script took another way: {part.one} in one replay, {part.other} in the other",
    }
    seed = SEED if part.parting == "generator" else None
    return Judgement("outside-value", reasons[part.parting], what, seed, changed)


def _alike(replays: Sequence[Replayed], what: str) -> str:
    return f"{len(replays)} replays are the same to the last bit, and not what was recorded: {what}"


def _came_to(replay: Replayed) -> tuple[Any, ...]:
    found = replay.first_difference
    return () if found is None else (found.step, found.phase, found.tensor, found.replayed)

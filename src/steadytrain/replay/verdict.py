"""Judges the replays of a run: exact, or the first difference and its kind.

The inputs are result documents of replays (from ``replay/from_script.py``) and two traces of the first differing step.
Runs nothing and needs no torch. The rule:

- Two replays differ: their traces name the first operation that gave other bits for the same input (a
  nondeterministic operation), or the value that came from outside (a clock, a generator, data). If the traces agree,
  the difference was transient.
- Both agree, but differ from the recording: the environment changed, and the changes are listed. Without changes,
  the recorded run contained something that was not recorded or is not repeatable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import JsonValue
from steadytrain.experiments.command_results import CommandResult
from steadytrain.experiments.device_facts import described
from steadytrain.replay.determinism import MEMORY, switch_for
from steadytrain.replay.trace_comparison import Part

SCHEMA = "steadytrain.replay/1"

Kind = Literal[
    "transient",
    "nondeterministic-operation",
    "environment-changed",
    "outside-value",
    "persistent-device",
    "unknown",
]

CLEAN_STATUS, SYMPTOM_STATUS, CANNOT_TELL_STATUS = 0, 1, 125
"""The exit statuses that ``git bisect run`` expects."""

COMPILED = "kernels of torch.compile gave different bits for the same input; they cannot be traced one by one"
COMPILED_AGAIN = (
    "kernels of torch.compile, compiled again for the replay, gave other bits than those of the recorded run; they "
    "cannot be traced one by one"
)
DETERMINISTIC = "steadytrain run --deterministic, or torch.use_deterministic_algorithms(True) before compiling"
RUN_EAGERLY = "compiled code was run eagerly"
"""The note of a trace in which code of ``torch.compile`` ran eagerly."""

SEED = "give the generator a fixed seed before training: generator.manual_seed(...)"


@dataclass(frozen=True)
class Difference(JsonValue):
    """The first difference. ``phase`` is batch, random, forward, backward, communication or optimizer. ``rank``: the
    one that differs, if several were replayed."""

    step: int
    phase: str
    tensor: str
    recorded: str
    replayed: str
    rank: int | None = None


@dataclass(frozen=True)
class OfRank(JsonValue):
    """What one of several ranks showed in a replay of all. ``loss_finite`` is that of the last step."""

    rank: int
    exact: bool
    steps: int
    first_difference: Difference | None
    loss_finite: bool | None


@dataclass(frozen=True)
class Replayed(JsonValue):
    """The result of one replay. ``symptom`` is None if it could not be checked, or if there is none to check."""

    from_step: int
    until_step: int
    steps: int
    first_difference: Difference | None
    symptom: bool | None
    script_batches_equal: bool | None
    notes: tuple[str, ...] = ()
    loss_finite: bool | None = None
    """Whether the loss of the last step was finite."""

    ranks: tuple[OfRank, ...] = ()
    """Of each rank, if several were replayed."""

    failing_rank: int | None = None
    """Of several ranks the one where the step went wrong; None if that is unknown, or if none did."""

    failing_place: str | None = None
    """The first bad operation of that rank, as its incident names it."""

    @property
    def exact(self) -> bool:
        return self.first_difference is None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Replayed:
        """Reads a result document.

        Raises:
            UsageError: the document is malformed.
        """
        try:
            return super().from_json(data)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"not a replay result ({error!r})") from None


@dataclass(frozen=True)
class Judgement:
    """``kind`` is None if all replays were exact. ``why`` gives the reason in one sentence."""

    kind: Kind | None
    why: str
    operation: Mapping[str, Any] | None = None
    switch: str | None = None
    changed: tuple[str, ...] = ()


def judge(
    replays: Sequence[Replayed],
    *,
    changed: Sequence[str],
    traced: bool = False,
    part: Part | None = None,
    compiled: bool = False,
) -> Judgement:
    """The kind of the difference. ``part`` is where two traces of that step diverge; ``traced``: two traces exist;
    ``compiled``: they ran code of ``torch.compile`` eagerly, so its kernels are in none of them."""
    changed = tuple(changed)
    if all(replay.exact for replay in replays):
        return Judgement(None, "every replayed step was the same to the last bit", changed=changed)
    times = f"{len(replays)} replays"
    if compiled and (differ(replays) or not changed) and (part is None or part.parting == "outside"):
        why = COMPILED if differ(replays) else COMPILED_AGAIN
        return Judgement("nondeterministic-operation", why, None, DETERMINISTIC, changed)
    if part is not None:
        found = _of_part(part, changed)
        if differ(replays) or not changed or found.kind == "outside-value":
            return found
    if differ(replays):
        why = f"{times} differ from each other"
        if traced:
            why += ", but those traced operation by operation do not: the difference is intermittent"
        return Judgement("transient", why, changed=changed)
    if changed:
        return Judgement(
            "environment-changed", _alike(replays, "something changed since the recording"), None, None, changed
        )
    return Judgement("unknown", _alike(replays, "the run had something that was not recorded or is not repeatable"))


def differ(replays: Sequence[Replayed]) -> bool:
    """Whether the replays got different bits. Each is compared with the recording, and thus with the others."""
    return len({came_to(replay) for replay in replays}) > 1


def earliest(replays: Sequence[Replayed]) -> Difference | None:
    """The earliest of all first differences; None if all replays were exact."""
    found = [replay.first_difference for replay in replays if replay.first_difference is not None]
    return min(found, key=lambda difference: difference.step, default=None)


def status(replays: Sequence[Replayed], *, looked_for: bool) -> int:
    """The exit status: 1 if the symptom came in any replay, 0 if not, 125 if unknown.

    If there is no symptom to check (a run without an incident), any difference counts as the symptom.
    """
    if not looked_for:
        return CLEAN_STATUS if all(replay.exact for replay in replays) else SYMPTOM_STATUS
    if any(replay.symptom for replay in replays):
        return SYMPTOM_STATUS
    return CANNOT_TELL_STATUS if any(replay.symptom is None for replay in replays) else CLEAN_STATUS


def document(
    incident: str,
    replays: Sequence[Replayed],
    judgement: Judgement,
    *,
    looked_for: bool = True,
    devices: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """The ``steadytrain.replay/1`` document. ``devices``: what each of several showed, if they were compared."""
    first, worst = earliest(replays), _worst(replays)
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
        "ranks": [rank.to_json() for rank in worst.ranks],
        "failing_rank": worst.failing_rank,
        "failing_place": worst.failing_place,
        "devices": [dict(one) for one in devices],
    }


def _worst(replays: Sequence[Replayed]) -> Replayed:
    """The replay that differs first; the first one if all were exact."""
    first = earliest(replays)
    return next((one for one in replays if first is not None and one.first_difference == first), replays[0])


def command_result(result: Mapping[str, Any]) -> CommandResult:
    """The result document in one line, as it is kept beside the incident."""
    exact, symptom = result["first_difference"] is None, result["symptom"]
    how = "bit-identical" if exact else f"not bit-identical: {result['why']}"
    came = {True: "; the symptom came again", False: "; the symptom did not come again", None: ""}[symptom]
    effect = "differs" if not exact else {True: "again", False: "gone", None: "exact"}[symptom]
    return CommandResult(
        "replay", True, f"steps {result['from_step']} to {result['until_step']} are {how}{came}", effect
    )


def lines(result: Mapping[str, Any]) -> list[str]:
    """Formats a result document for the terminal, one string a line."""
    first, count = result["first_difference"], result["steps"]
    asked = result["until_step"] - result["from_step"] + 1
    times = f", {result['times']} times" if result["times"] > 1 else ""
    ranks = result["ranks"]
    together = f" on {len(ranks)} ranks" if ranks else ""
    told = [f"replay of steps {result['from_step']} to {result['until_step']}{together}{times}"]
    if first is None:
        told.append(_line("exact", f"{count} of {asked} steps, to the last bit{', on every rank' if ranks else ''}"))
    else:
        told.append(
            _line(
                "not exact",
                f"{first['step'] - result['from_step']} of {asked} steps; first different at step {first['step']}",
            )
        )
        where = "" if first.get("rank") is None else f"rank {first['rank']}, "
        told.append(_line("first difference", f"{where}{first['phase']}: {first['tensor']}"))
        told.append(_line("", f"recorded {first['recorded']}, replayed {first['replayed']}"))
        told.append(_line("kind", f"{(result['kind'] or 'unknown').replace('-', ' ')}: {result['why']}"))
    if first is None and result["devices"]:
        told.append(_line("devices", result["why"]))
    told += [_line(one["name"], _of_device(one)) for one in result["devices"]]
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
    if first is not None:
        told += [_line(f"rank {one['rank']}", _of_rank(one)) for one in ranks]
    if result["symptom"] is not None:
        told.append(_line("symptom", "came again" if result["symptom"] else "did not come"))
    if result["symptom"] and result["failing_rank"] is not None:
        place = result["failing_place"]
        told.append(_line("failing rank", f"{result['failing_rank']}{f': {place}' if place else ''}"))
    if result["script_batches_equal"] is False:
        told.append(_line("batches", "the script loaded different batches than recorded; the recorded ones were used"))
    return told + [_line("note", note) for note in result["notes"]]


def _of_rank(one: Mapping[str, Any]) -> str:
    return _first(one["first_difference"]) or f"exact in {one['steps']} steps"


def _first(difference: Mapping[str, Any] | None) -> str:
    if difference is None:
        return ""
    return f"first different at step {difference['step']} ({difference['phase']}: {difference['tensor']})"


def _of_device(one: Mapping[str, Any]) -> str:
    showed = _first(one["first_difference"]) or "exact"
    if not one["repeats"]:
        showed += ", and not the same each time"
    which = described(one)
    return f"{showed}{'; computes wrong' if one['suspect'] else ''}{f' [{which}]' if which else ''}"


def _line(name: str, text: str) -> str:
    return f"  {name:<20} {text}"


def _of_part(part: Part, changed: tuple[str, ...]) -> Judgement:
    operation = part.operation
    if operation is None:
        return Judgement("unknown", "the traces differ, but no operation is recorded there", changed=changed)
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
        why = "the operation gave different bits for the same input"
        return Judgement("nondeterministic-operation", why, what, switch_for(operation.name, operation.device), changed)
    if part.parting == "memory":
        why = "the operation read uninitialised memory"
        return Judgement("nondeterministic-operation", why, what, MEMORY, changed)
    reasons = {
        "operation": "the operation drew different random numbers from the same generator state",
        "generator": "it drew from a random generator in a different state, which the script does not seed",
        "number": f"its argument {part.value} was a different number, {part.one} and {part.other}: a clock, a file",
        "outside": f"the tensor {part.value} differed on input, and no torch operation caused it (a NumPy "
        "generator, a clock, a file, or a kernel outside torch)",
        "path": f"the script took a different path: {part.one} in one replay, {part.other} in the other",
    }
    seed = SEED if part.parting == "generator" else None
    return Judgement("outside-value", reasons[part.parting], what, seed, changed)


def _alike(replays: Sequence[Replayed], what: str) -> str:
    if len(replays) == 1:
        return f"the replay differs from the recording: {what}"
    return f"{len(replays)} replays agree to the last bit, but differ from the recording: {what}"


def came_to(replay: Replayed) -> tuple[Any, ...]:
    """What a replay has in common with others that gave the same bits."""
    found = replay.first_difference
    return () if found is None else (found.step, found.phase, found.tensor, found.replayed)


def number_text(text: str) -> str:
    """The exact decimal form of a number in hex. All NaNs are equal."""
    if text == "absent":
        return text
    value = float.fromhex(text)
    return "nan" if math.isnan(value) else repr(value)

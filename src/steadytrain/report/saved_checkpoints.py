"""Which checkpoints of a run are good: their values, the phase that they were saved in, and where they are now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from steadytrain.core.incident import Action
from steadytrain.core.model import Symptom
from steadytrain.grouping.catalog import spoils_weights
from steadytrain.report.action_words import counted
from steadytrain.storage.checkpoint_pins import SAVED_FACT, is_as_recorded
from steadytrain.storage.run_folder import Run

LAST_STEPS = 64
"""A symptom that the run ends with, or that was seen last so many steps before, may be going on."""

Verdict = Literal["good", "sick", "not-finite", "unknown"]


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint that the script wrote; ``step``: the updates that it holds. ``touched``: what steadytrain had done
    to the run before, counted; "" for nothing."""

    step: int
    path: str | None
    verdict: Verdict
    why: str
    kept_at: str | None
    size_bytes: int
    touched: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "path": self.path,
            "verdict": self.verdict,
            "why": self.why,
            "kept_at": self.kept_at,
            "bytes": self.size_bytes,
            "touched": self.touched,
        }


def saved_checkpoints(run: Run) -> list[Checkpoint]:
    """All that were noted, in the order in which they were written."""
    entries = run.facts.get(SAVED_FACT)
    stream = next(iter(run.streams()), "main")
    sick = [one for one in run.symptoms if spoils_weights(one) and one.stream == stream]
    return (
        [_checkpoint(entry, sick, run.actions) for entry in entries if isinstance(entry, Mapping)]
        if isinstance(entries, Sequence)
        else []
    )


def last_good(checkpoints: Sequence[Checkpoint]) -> Checkpoint | None:
    """The good one of the most steps whose content still exists; of several, the one that holds most."""
    good = [one for one in checkpoints if one.verdict == "good" and one.kept_at is not None]
    return max(good, key=lambda one: (one.step, one.size_bytes), default=None)


def _checkpoint(entry: Mapping[str, Any], sick: Sequence[Symptom], actions: Sequence[Action]) -> Checkpoint:
    step, path = int(entry.get("step", 0)), entry.get("path")
    verdict, why = _judged(entry, step, sick)
    sizes = [known[0] for known in (entry.get("files") or {}).values() if isinstance(known, list) and known]
    size = sum(one for one in sizes if isinstance(one, int))
    touched = counted([action for action in actions if action.step <= step])
    return Checkpoint(step, path if isinstance(path, str) else None, verdict, why, _kept_at(entry), size, touched)


def _judged(entry: Mapping[str, Any], step: int, sick: Sequence[Symptom]) -> tuple[Verdict, str]:
    bad, count = [str(name) for name in entry.get("bad", ())], int(entry.get("bad_count", 0))
    if count:
        more = f" and {count - len(bad)} more" if count > len(bad) else ""
        return "not-finite", f"not finite: {', '.join(bad)}{more}"
    during = [one for one in sick if one.first_step <= step <= one.last_step]
    if during:
        first = during[0]
        return "sick", f"saved during {first.name} (steps {first.first_step:,} to {first.last_step:,})"
    before = [one for one in sick if one.last_step < step <= one.last_step + LAST_STEPS]
    if before:
        return "unknown", f"saved {step - before[-1].last_step} steps after {before[-1].name}"
    return "good", "finite, and saved outside of any symptom that spoils weights"


def _kept_at(entry: Mapping[str, Any]) -> str | None:
    """Where its content is: where the script wrote it, or the pin."""
    files = entry.get("files")
    if isinstance(files, Mapping) and files and all(is_as_recorded(path, known) for path, known in files.items()):
        return str(entry.get("path")) if len(files) > 1 else str(next(iter(files)))
    pin = entry.get("held")
    held = pin.get("files") if isinstance(pin, Mapping) else None
    if not isinstance(pin, Mapping) or not isinstance(held, Mapping) or not held:
        return None
    if not all(is_as_recorded(path, known) for path, known in held.items()):
        return None
    return str(pin.get("folder")) if len(held) > 1 else str(next(iter(held)))

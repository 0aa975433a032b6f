"""The entries of the ledger in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from steadytrain.core.incident import Action

WORDS = {
    "refused-update": "update refused",
    "refused-rest-of-update": "rest of the update refused",
    "skipped-update": "update skipped",
    "observed": "only observed",
    "stopped": "run stopped",
    "paused": "run paused",
    "resumed": "run resumed",
    "resumed-from": "state from before an incident loaded",
    "changed-level": "level of recording changed",
    "kept-snapshot": "snapshot kept",
    "kept-steps": "steps kept",
}

FIRST_SNAPSHOT = "step-000001"


def action_words(action: Action) -> str:
    """What was done, with the numbers that it changed."""
    if action.what == "rolled-back":
        return f"rolled back to the state after step {action.after.get('step', 0):,.0f}"
    numbers = ", ".join(_number(action, name) for name in action.after)
    match action.what:
        case "applied":
            return f"{action.intervention} applied" + (f" ({numbers})" if numbers else "")
        case "not-applied":
            return f"{action.intervention} not applied"
        case "reverted":
            return f"{action.intervention} taken back"
        case "ended":
            return f"{action.intervention} ended"
        case _:
            return WORDS[action.what] + (f" ({numbers})" if numbers else "")


def left_course(left_at: int, snapshot: str) -> str:
    """What a refused update did not make good: the loss ran away before it. ``snapshot`` is the newest from before, ""
    if none was kept."""
    first = " (the weights that the run began with)" if snapshot == FIRST_SNAPSHOT else ""
    where = f"snapshot {snapshot}{first}" if snapshot else "none kept"
    return f"the loss left its course at step {left_at:,}; weights from before: {where}"


def counted(actions: Sequence[Action]) -> str:
    """The actions that changed the run, counted: ``2 updates skipped, 1 roll-back, clip``."""
    touched = [action for action in actions if action.touched]
    counts: Counter[str] = Counter(action.what for action in touched)
    parts = []
    for what, one, several in (
        ("refused-update", "update refused", "updates refused"),
        ("refused-rest-of-update", "rest of an update refused", "rests of updates refused"),
        ("skipped-update", "update skipped", "updates skipped"),
        ("rolled-back", "roll-back", "roll-backs"),
    ):
        if counts[what]:
            parts.append(f"{counts[what]:,} {one if counts[what] == 1 else several}")
    parts += dict.fromkeys(action.intervention for action in touched if action.what == "applied")
    parts += ["stopped"] if counts["stopped"] else []
    return ", ".join(parts)


def _number(action: Action, name: str) -> str:
    before, after = action.before.get(name), action.after[name]
    change = f"{after:.4g}" if before is None else f"{before:.4g} to {after:.4g}"
    return f"{name.replace('_', ' ')} {change}"

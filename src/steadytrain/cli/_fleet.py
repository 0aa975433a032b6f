"""``steadytrain runs --root``: the runs of many folders, the gravest first, or counted by what they have in common."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from steadytrain.cli._next import say_next
from steadytrain.cli._output import fit, in_columns, say, say_document, terminal_width
from steadytrain.cli._progress import progress
from steadytrain.core.model import SEVERITIES
from steadytrain.report.wording import clean
from steadytrain.storage.fleet import NO_VERDICT, Fleet, FleetRun, fleet
from steadytrain.storage.roots import DEPTH_MAX, Root, root_at

SCHEMA = "steadytrain.fleet/1"
NOT_KNOWN = "-"
NOT_ASKED, NO_SYMPTOM, NOTES = "not diagnosed", "none seen", "notes only"
COLUMNS = ("run", "node", "device", "started", "steps", "ended", "symptom", "cause")
NUMBERS = frozenset({"steps", "runs", "critical", "warned", "broke off"})
UNREADABLE_SHOWN_MAX = 8
TOLD_EVERY = 50
CRITICAL, WARNING = SEVERITIES[-1], SEVERITIES[-2]


def _devices(run: FleetRun) -> str:
    """Such as ``2 x NVIDIA H100``."""
    counted = Counter(run.devices)
    return ", ".join(name if number == 1 else f"{number} x {name}" for name, number in counted.items()) or NOT_KNOWN


def _symptom(run: FleetRun) -> str:
    """The gravest symptom: such as ``nonfinite-loss`` or, if all are notes, that with its severity."""
    if not run.symptoms:
        return NO_SYMPTOM if run.steps is not None else NOT_KNOWN
    name, severity, _ = run.symptoms[0]
    return name if severity in (CRITICAL, WARNING) else f"{name} ({severity})"


def _cause(run: FleetRun) -> str:
    if run.cause is None:
        return (NO_SYMPTOM if run.steps is not None else NOT_KNOWN) if not run.symptoms else NOT_ASKED
    return run.cause if run.cause == NO_VERDICT or run.status is None else f"{run.cause} ({run.status})"


def _cause_told(run: FleetRun) -> str:
    """The cause of a row: with the symptom that it explains, if that is another than the one shown."""
    if run.cause is None or run.cause_of in (None, run.symptoms[0][0] if run.symptoms else None):
        return NOT_KNOWN if run.cause is None and not run.symptoms else _cause(run)
    return f"{_cause(run)} of {run.cause_of}"


def _symptoms(run: FleetRun) -> tuple[str, ...]:
    """All symptoms above a note."""
    if not run.symptoms:
        return (_symptom(run),)
    return tuple(name for name, severity, _ in run.symptoms if severity in (CRITICAL, WARNING)) or (NOTES,)


def _health(run: FleetRun) -> str:
    if run.steps is None:
        return NOT_KNOWN
    return run.worst or NO_SYMPTOM


GROUPINGS: dict[str, Callable[[FleetRun], tuple[str, ...]]] = {
    "health": lambda run: (_health(run),),
    "cause": lambda run: (_cause(run),),
    "symptom": _symptoms,
    "ended": lambda run: (run.state,),
    "node": lambda run: (run.node or NOT_KNOWN,),
    "device": lambda run: (_devices(run),),
}
"""What ``--by`` takes, and the groups of a run."""


def list_fleet(where: str, by: str | None, as_json: bool) -> None:
    """Print the runs below ``where``.

    Raises:
        UsageError: the place cannot be listed.
    """
    root = root_at(where)
    with progress() as tell:
        found = fleet(root, lambda read: tell(f"{read:,} runs read") if tell and read % TOLD_EVERY == 0 else None)
    if as_json:
        say_document(_document(root, found, by), ensure_ascii=True)
        return
    if not found.runs and not found.unreadable:
        say(f"No runs found below {root.name}: a run is a folder with a run.json, at most {DEPTH_MAX} folders deep.")
    if found.runs:
        say(_sentence(root, found))
        rows = list(_groups_as_rows(found.runs, by)) if by else list(_rows(found.runs))
        say(f"\n{_fitted(rows)}")
        if root.local("") is not None:
            first = found.runs[0]
            which = "the gravest of them" if first.worst else "the first of them"
            say_next("show", f"{root.name}/{first.folder}" if first.folder else root.name, why=which, err=True)
    for reason in found.unreadable[:UNREADABLE_SHOWN_MAX]:
        say(f"steadytrain: not listed: {clean(reason)}", err=True)
    if len(found.unreadable) > UNREADABLE_SHOWN_MAX:
        say(f"steadytrain: and {len(found.unreadable) - UNREADABLE_SHOWN_MAX} more that cannot be read", err=True)
    if found.ended_early:
        say(f"steadytrain: {found.ended_early}", err=True)


def _sentence(root: Root, found: Fleet) -> str:
    """Such as ``12 runs below /shared: 9 without a symptom, 2 with a warning, 1 critical; 3 running, 1 failed``."""
    health = Counter(_health(run) for run in found.runs)
    words = {
        NO_SYMPTOM: "without a symptom",
        "note": "with a note",
        WARNING: "with a warning",
        CRITICAL: "critical",
        NOT_KNOWN: "without a summary (not over, or killed)",
    }
    parts = ", ".join(f"{health[name]:,} {said}" for name, said in words.items() if health[name])
    states = Counter(run.state for run in found.runs)
    ended = ", ".join(f"{states[name]:,} {name}" for name in ("running", "failed", "killed") if states[name])
    runs = f"{len(found.runs):,} {'run' if len(found.runs) == 1 else 'runs'}"
    return f"{runs} below {clean(root.name)}: {parts}" + (f"; {ended}" if ended else "")


def _rows(runs: Sequence[FleetRun]) -> Iterator[tuple[str, ...]]:
    yield COLUMNS
    for run in runs:
        yield (
            clean(run.folder or run.name),
            clean(run.node or NOT_KNOWN),
            clean(_devices(run)),
            clean(run.started)[:16].replace("T", " ") or NOT_KNOWN,
            f"{run.steps:,}" if run.steps is not None else NOT_KNOWN,
            clean(run.state),
            clean(f"{_symptom(run)} at {run.symptoms[0][2]:,}" if run.symptoms else _symptom(run)),
            clean(_cause_told(run)),
        )


def _groups(runs: Sequence[FleetRun], by: str) -> list[tuple[str, list[FleetRun]]]:
    """The runs by group, the group with most critical and then with most runs first."""
    groups: defaultdict[str, list[FleetRun]] = defaultdict(list)
    for run in runs:
        for name in GROUPINGS[by](run):
            groups[name].append(run)
    return sorted(groups.items(), key=lambda one: (-_number(one[1], CRITICAL), -len(one[1]), one[0]))


def _number(runs: Sequence[FleetRun], severity: str) -> int:
    return sum(run.worst == severity for run in runs)


def _broke_off(runs: Sequence[FleetRun]) -> int:
    return sum(run.broke_off for run in runs)


def _newest(runs: Sequence[FleetRun]) -> FleetRun:
    return max(runs, key=lambda run: run.started)


def _groups_as_rows(runs: Sequence[FleetRun], by: str) -> Iterator[tuple[str, ...]]:
    yield by, "runs", "critical", "warned", "broke off", "newest"
    for name, members in _groups(runs, by):
        numbers = len(members), _number(members, CRITICAL), _number(members, WARNING), _broke_off(members)
        counts = tuple(f"{number:,}" for number in numbers)
        newest = _newest(members)
        yield clean(name), *counts, clean(newest.folder or newest.name)


def _fitted(rows: Sequence[tuple[str, ...]]) -> str:
    """The table; on a narrow terminal two lines for each run or group, without what is not known."""
    text, width = in_columns(rows, NUMBERS), terminal_width()
    if width is None or max(map(len, text.splitlines())) <= width:
        return text
    head, *entries = rows
    lines = []
    for first, *cells in entries:
        known = [_named(cell, name) for cell, name in zip(cells, head[1:], strict=True) if cell != NOT_KNOWN]
        lines += [first, fit(f"  {'  '.join(known)}", width)]
    return "\n".join(lines)


def _named(cell: str, name: str) -> str:
    """``3 runs``, ``1 run``, ``n17``."""
    if name not in NUMBERS:
        return cell
    return f"{cell} {name.removesuffix('s') if cell == '1' else name}"


def _document(root: Root, found: Fleet, by: str | None) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "root": root.name,
        "runs": [_entry(run) for run in found.runs],
        "unreadable": list(found.unreadable),
        "complete": not found.ended_early,
    }
    if by is not None:
        document["by"] = by
        document["groups"] = [
            {
                "name": name,
                "runs": len(members),
                "critical": _number(members, CRITICAL),
                "warning": _number(members, WARNING),
                "broke_off": _broke_off(members),
                "newest": _newest(members).folder,
            }
            for name, members in _groups(found.runs, by)
        ]
    return document


def _entry(run: FleetRun) -> dict[str, Any]:
    return {
        "folder": run.folder,
        "run": run.name,
        "started": run.started or None,
        "command": run.command,
        "node": run.node,
        "devices": list(run.devices),
        "ranks": run.ranks,
        "state": run.state,
        "ended": run.ended,
        "steps": run.steps,
        "worst": run.worst,
        "symptoms": [{"name": name, "severity": grave, "first_step": step} for name, grave, step in run.symptoms],
        "incidents": run.incidents,
        "cause": run.cause,
        "cause_status": run.status,
        "cause_of": run.cause_of,
    }

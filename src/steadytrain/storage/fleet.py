"""The runs of many people and machines: what each came to, in a line, from a few small documents of its folder.

A run that has ended keeps a summary (``run_summaries``); of one that has not, the index is read where it lies on this
machine. What a diagnosis concluded lies beside the incident. Not here: where runs lie (``roots``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.model import SEVERITIES, Severity, worst
from steadytrain.storage.left_overs import ended_or_state
from steadytrain.storage.roots import Root
from steadytrain.storage.run_folder import RANKS_FOLDER, RUN_FILE, checked_description
from steadytrain.storage.run_index import INDEX_FILE
from steadytrain.storage.run_summaries import KEPT_FILE, Ending, count_incidents, kept_ending, summary_of
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER

READERS = 16
"""Runs that are read at a time: an object store answers in tens of milliseconds, and in parallel."""

INCIDENTS_MAX = 8
RANK_INCIDENTS_MAX = 64
RANKS_READ_MAX = 16
"""Ranks whose own summaries are read where that of the run is missing."""

ANSWER = "diagnosis.json"
NO_VERDICT = "unknown"
STOPPED = "stopped"
STATUSES = ("confirmed", "likely", "possible")
"""Statuses of a verdict, the surest first."""


@dataclass(frozen=True)
class FleetRun:
    """A run of a fleet.

    ``folder`` is its path below the root, ``cause`` and ``status`` the surest verdict that ``diagnose`` stored: None if
    it was never asked, ``unknown`` and None if it could not tell. ``steps`` is None if nothing here can say it.
    """

    folder: str
    name: str
    started: str
    command: str
    node: str | None
    devices: tuple[str, ...]
    ranks: int
    state: str
    ended: str | None
    steps: int | None
    symptoms: tuple[tuple[str, Severity, int], ...]
    incidents: int
    cause: str | None
    status: str | None
    cause_of: str | None
    """The symptom that the verdict explains."""

    @property
    def broke_off(self) -> bool:
        """Whether it ended by an error or was killed."""
        return self.state in ("failed", "killed")

    @property
    def worst(self) -> Severity | None:
        """The gravest severity of its symptoms."""
        return worst([severity for _, severity, _ in self.symptoms])


@dataclass(frozen=True)
class Fleet:
    """The runs of a root, and one line for each run or folder that cannot be read.

    The gravest come first, then those that broke off, then the newest.
    """

    runs: tuple[FleetRun, ...]
    unreadable: tuple[str, ...]
    ended_early: str


def fleet(root: Root, counted: Callable[[int], None] = lambda _: None) -> Fleet:
    """Read the runs of a root; ``counted`` gets the number of those read so far.

    Raises:
        UsageError: the root cannot be listed.
    """
    found: list[FleetRun] = []
    unreadable: list[str] = []
    with ThreadPoolExecutor(READERS, thread_name_prefix="steadytrain-fleet") as readers:
        try:
            tried = readers.map(lambda folder: _tried(root, folder), list(root.runs()))
            for number, one in enumerate(tried, start=1):
                found += [one] if isinstance(one, FleetRun) else []
                unreadable += [one] if isinstance(one, str) else []
                counted(number)
        except BaseException:  # Ctrl-C does not wait for thousands of runs
            readers.shutdown(wait=False, cancel_futures=True)
            raise
    found.sort(key=lambda run: (run.started, run.folder), reverse=True)
    found.sort(key=lambda run: (SEVERITIES.index(run.worst) if run.worst else -1, run.broke_off), reverse=True)
    return Fleet(tuple(found), (*unreadable, *root.unlisted), root.ended_early)


def _tried(root: Root, folder: str) -> FleetRun | str:
    try:
        return _run(root, folder)
    except UsageError as error:
        return str(error)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return f"{folder or root.name}: cannot be read ({type(error).__name__})"


def _run(root: Root, folder: str) -> FleetRun:
    at = f"{folder}/" if folder else ""
    description = checked_description(root.read(f"{at}{RUN_FILE}"), Path(folder or root.name))
    ending, incidents, state = _ending(root, folder, at, description)
    bundles = _newest(f"{INCIDENTS_FOLDER}/{name}" for name in root.folders(f"{at}{INCIDENTS_FOLDER}"))
    bundles = bundles[:INCIDENTS_MAX] + _of_other_ranks(root, at, ending, _size(description))
    cause, status, explained = _verdict(root, at, bundles)
    argv = description.get("argv")
    return FleetRun(
        folder=folder,
        name=str(description.get("name") or folder.rpartition("/")[2]),
        started=_text(description.get("started")) or "",
        command=" ".join(map(str, argv)) if isinstance(argv, list) else "",
        node=_text(description.get("node")) or _text(_inside(description.get("slurm"), "node")),
        devices=ending.devices if ending is not None else (),
        ranks=_size(description),
        state=state,
        ended=ending.ended if ending is not None else None,
        steps=ending.steps if ending is not None else None,
        symptoms=ending.symptoms if ending is not None else (),
        incidents=incidents,
        cause=cause,
        status=status,
        cause_of=explained,
    )


def _ending(root: Root, folder: str, at: str, description: dict[str, Any]) -> tuple[Ending | None, int, str]:
    """What is known of how a run went, the number of its incidents, and its state in words."""
    local, size = root.local(folder), _size(description)
    if local is not None and (local / INDEX_FILE).exists():
        summary = summary_of(local)
        is_over = summary.ended is None and summary.state != "running"
        ended_by_others = _ended_of_ranks(root, at, size) if is_over else None
        if ended_by_others is not None and ended_by_others.ended == STOPPED:
            return replace(summary.ending, ended=STOPPED), summary.incidents, STOPPED
        return summary.ending, summary.incidents, summary.state
    ending = _kept(root, at) or _ended_of_ranks(root, at, size)
    ended = ending.ended if ending is not None else None
    # Whether a process of another machine is alive, nobody here can tell.
    state = ended or ended_or_state(None, description if local is not None else {})
    own = [path.rpartition("/")[2] for path in ending.incidents] if ending is not None else []
    return ending, count_incidents(own, ending.of_ranks if ending is not None else ()), state


def _kept(root: Root, at: str) -> Ending | None:
    with suppress(OSError, ValueError, LookupError, TypeError, UsageError):
        return kept_ending(root.read(f"{at}{KEPT_FILE}"))
    return None


def _ended_of_ranks(root: Root, at: str, size: int) -> Ending | None:
    """What the other ranks say of how a run ended: its launcher may have ended the first one before it could. A rank
    that stopped counts first, and of ranks that finished nobody knows whether the first one did; None if none has a
    summary."""
    found: list[Ending] = []
    of_ranks: list[str] = []
    for rank in range(1, min(size, RANKS_READ_MAX + 1)):
        inside = f"{RANKS_FOLDER}/{rank:04d}/"
        if (one := _kept(root, f"{at}{inside}")) is not None:
            found.append(one)
            of_ranks += [f"{inside}{path}" for path in one.incidents]
    if not found:
        return None
    first = min(found, key=lambda one: (one.ended != STOPPED, one.ended != "failed"))
    symptoms = sorted({one for ending in found for one in ending.symptoms}, key=lambda one: (one[2], one[0]))
    symptoms.sort(key=lambda one: SEVERITIES.index(one[1]), reverse=True)
    by_name = {name: (name, severity, step) for name, severity, step in reversed(symptoms)}
    gravest_first = tuple(one for one in symptoms if by_name[one[0]] == one)
    steps = max(one.steps for one in found)
    ended = first.ended if first.ended in (STOPPED, "failed") else None
    return replace(first, ended=ended, symptoms=gravest_first, steps=steps, incidents=(), of_ranks=tuple(of_ranks))


def _of_other_ranks(root: Root, at: str, ending: Ending | None, size: int) -> list[str]:
    """The incidents of other ranks, the newest first: paths within the run folder."""
    if size < 2:
        return []
    if ending is not None and ending.of_ranks is not None:
        return _newest(ending.of_ranks)[:RANK_INCIDENTS_MAX]
    inside = [f"{RANKS_FOLDER}/{rank:04d}/{INCIDENTS_FOLDER}" for rank in range(1, min(size, RANKS_READ_MAX + 1))]
    return _newest(f"{one}/{name}" for one in inside for name in root.folders(f"{at}{one}"))[:RANK_INCIDENTS_MAX]


def _newest(bundles: Iterable[str]) -> list[str]:
    """Paths of bundles by name, the newest first."""
    names = [one for one in bundles if not one.endswith("/trials")]
    return sorted(names, key=lambda path: path.rpartition("/")[2], reverse=True)


def _size(description: dict[str, Any]) -> int:
    size = description.get("world_size")
    return size if type(size) is int and size > 0 else 1


def _verdict(root: Root, at: str, bundles: Iterable[str]) -> tuple[str | None, str | None, str | None]:
    """The surest verdict of a run's incidents and of the run itself, its status, and the symptom it explains.

    ``bundles`` are the paths of the incidents within the run folder, of all ranks.
    """
    places = [f"{at}trials/{ANSWER}"]
    for bundle in bundles:
        folder, _, name = bundle.rpartition("/")
        places += [f"{at}{folder}/trials/{name}/{ANSWER}", f"{at}{bundle}/answer/{ANSWER}"]
    found: list[tuple[int, str, str | None, str | None]] = []
    for place in places:
        with suppress(OSError, ValueError, UsageError, RecursionError, json.JSONDecodeError):
            answer = root.read(place)
            cause, status = _text(_inside(answer, "verdict")), _text(_inside(answer, "status"))
            if cause is not None:
                sure = STATUSES.index(status) if status in STATUSES else len(STATUSES)
                explained = _text((_text(_inside(answer, "symptom")) or "").partition(":")[0])
                found.append((sure, cause, status if sure < len(STATUSES) else None, explained))
                if sure == 0:
                    break
    return min(found, key=lambda one: one[0])[1:] if found else (None, None, None)


def _inside(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

"""The runs of many people and machines: what each came to, in a line, from a few small documents of its folder.

A run that has ended keeps a summary (``run_summaries``); of one that has not, the index is read where it lies on this
machine. What a diagnosis concluded lies beside the incident. Not here: where runs lie (``roots``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.model import SEVERITIES, Severity, worst
from steadytrain.storage.left_overs import ended_or_state
from steadytrain.storage.roots import Root
from steadytrain.storage.run_folder import RUN_FILE, checked_description
from steadytrain.storage.run_index import INDEX_FILE
from steadytrain.storage.run_summaries import KEPT_FILE, Ending, kept_ending, summary_of
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER

READERS = 16
"""Runs that are read at a time: an object store answers in tens of milliseconds, and in parallel."""

INCIDENTS_MAX = 8
ANSWER = "diagnosis.json"
NO_VERDICT = "unknown"
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
    cause, status, explained = _verdict(root, at, root.folders(f"{at}{INCIDENTS_FOLDER}"))
    argv = description.get("argv")
    size = description.get("world_size")
    return FleetRun(
        folder=folder,
        name=str(description.get("name") or folder.rpartition("/")[2]),
        started=_text(description.get("started")) or "",
        command=" ".join(map(str, argv)) if isinstance(argv, list) else "",
        node=_text(description.get("node")) or _text(_inside(description.get("slurm"), "node")),
        devices=ending.devices if ending is not None else (),
        ranks=size if type(size) is int and size > 0 else 1,
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
    local = root.local(folder)
    if local is not None and (local / INDEX_FILE).exists():
        summary = summary_of(local)
        return summary.ending, summary.incidents, summary.state
    ending: Ending | None = None
    with suppress(OSError, ValueError, LookupError, TypeError, UsageError):
        ending = kept_ending(root.read(f"{at}{KEPT_FILE}"))
    ended = ending.ended if ending is not None else None
    # Whether a process of another machine is alive, nobody here can tell.
    state = ended or ended_or_state(None, description if local is not None else {})
    return ending, len(ending.incidents) if ending is not None else 0, state


def _verdict(root: Root, at: str, bundles: Iterable[str]) -> tuple[str | None, str | None, str | None]:
    """The surest verdict of a run's incidents and of the run itself, its status, and the symptom it explains."""
    newest_first = sorted((name for name in bundles if name != "trials"), reverse=True)[:INCIDENTS_MAX]
    places = [f"{at}trials/{ANSWER}"]
    for name in newest_first:
        places += [f"{at}{INCIDENTS_FOLDER}/trials/{name}/{ANSWER}", f"{at}{INCIDENTS_FOLDER}/{name}/answer/{ANSWER}"]
    found: list[tuple[int, str, str | None, str | None]] = []
    for place in places:
        with suppress(OSError, ValueError, UsageError, RecursionError, json.JSONDecodeError):
            answer = root.read(place)
            cause, status = _text(_inside(answer, "verdict")), _text(_inside(answer, "status"))
            if cause is not None:
                sure = STATUSES.index(status) if status in STATUSES else len(STATUSES)
                explained = _text((_text(_inside(answer, "symptom")) or "").partition(":")[0])
                found.append((sure, cause, status if sure < len(STATUSES) else None, explained))
    return min(found, key=lambda one: one[0])[1:] if found else (None, None, None)


def _inside(document: Any, name: str) -> Any:
    return document.get(name) if isinstance(document, dict) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None

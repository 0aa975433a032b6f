"""What a command is about to run: the recorded command, its script, and what differs from what was recorded.

A script inside a bundle or run folder is refused. Whether the user is asked is up to ``cli``. Torch-free.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from steadytrain.capture.incident.source_hashes import file_digest
from steadytrain.core.errors import UsageError
from steadytrain.replay.environment_changes import changes
from steadytrain.replay.files_at_begin import files_at_begin
from steadytrain.replay.moved_files import Moved, moved_environment
from steadytrain.report.wording import clean
from steadytrain.storage.bundle import MANIFEST, is_bundle, open_for_report
from steadytrain.storage.origin import is_own
from steadytrain.storage.redaction import redact_environment
from steadytrain.storage.run_folder import RUN_FILE, open_run, read_description
from steadytrain.storage.run_index import INDEX_FILE
from steadytrain.storage.secret_words import REDACTED

DIFFERENCES_SHOWN = 5
NO_SOURCE = "the source of the script was not recorded, so nobody can see whether it has changed"
INCIDENTS = "incidents"
WHOLE_SECOND = 1.0
"""The start of a run is recorded in whole seconds."""


@dataclass(frozen=True)
class LaunchNotice:
    """The command that will run. ``is_own``: this user recorded it on this machine. ``files``: which checkpoints of its
    own the script finds."""

    source: Path
    command: str
    place: str
    differences: tuple[str, ...]
    is_own: bool
    files: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The command, the script and the differences, one line each."""
        more = len(self.differences) - DIFFERENCES_SHOWN
        return [
            f"runs {self.command}",
            f"  {self.place}",
            *(f"  {clean(sentence)}" for sentence in self.files),
            *(f"  {_compared(one)}" for one in self.differences[:DIFFERENCES_SHOWN]),
            *([f"  and {more} more differences"] if more > 0 else []),
        ]


def _compared(difference: str) -> str:
    return difference if difference == NO_SOURCE else f"differs from what was recorded: {difference}"


def launch_notice(source: Path, moved: Moved) -> LaunchNotice | None:
    """What launching the command of a bundle or run will run; None if it names no command.

    Raises:
        UsageError: it is damaged, or its script lies inside a bundle or run folder.
    """
    documents = list(_documents(source))
    recorded = documents[0]
    environment = moved_environment(recorded, moved)
    script, module, folder = (_text(environment, name) for name in ("script", "module", "cwd"))
    if script is None and module is None:
        return None
    owned = all(is_own(one) for one in documents if one.get("script") or one.get("module"))
    for document in documents:
        _refuse_inside(moved_environment(document, moved))
    argv = [clean(argument) for argument in environment["argv"]]
    what = f"script {clean(script)}" if script is not None else f"module {clean(module)}"
    files = tuple(files_at_begin(source).sentences())
    place = f"{what}, in {clean(folder or os.getcwd())}"
    return LaunchNotice(
        source, shlex.join(["python", *argv]), place, tuple(_differences(recorded, moved)), owned, files
    )


def words_to_run_again(source: Path) -> list[str] | None:
    """What ``steadytrain run`` takes to run the script of a bundle or run again, here; None if that is not known.

    An argument that was a secret is not recorded, and another folder is another script.
    """
    recorded = next(iter(_documents(source)))
    script, module, folder = (_text(recorded, name) for name in ("script", "module", "cwd"))
    first, *arguments = recorded.get("argv") or [""]
    if (script is None and module is None) or folder != os.getcwd() or any(REDACTED in one for one in arguments):
        return None
    return [*(["-m", module] if module is not None else [first]), *arguments]


def _documents(source: Path) -> Iterator[Mapping[str, Any]]:
    """The document with the command of ``source`` first, then those of the run and of its other incidents."""
    if is_bundle(source):
        yield open_for_report(source).environment
        run = source.absolute().parent.parent
        if source.absolute().parent.name == INCIDENTS and (run / RUN_FILE).is_file():
            yield read_description(run)
        return
    opened = open_run(source)
    yield opened.description
    for incident in opened.incidents:
        with suppress(UsageError):  # a damaged bundle is refused by whoever opens it
            yield open_for_report(incident).environment


def _refuse_inside(environment: Mapping[str, Any]) -> None:
    script, folder = _text(environment, "script"), _text(environment, "cwd")
    imported_from = [script] if script is not None else [folder]
    if environment.get("module") and folder is not None:
        imported_from.append(folder)
    for path in filter(None, imported_from):
        for parent in (Path(path).resolve(), *Path(path).resolve().parents):
            files = ((MANIFEST, "incident.json"), (RUN_FILE, INDEX_FILE))
            if any(all((parent / name).is_file() for name in pair) for pair in files):
                raise UsageError(f"{clean(path)}: lies inside {parent}; a script inside a bundle or run is never run")


def _text(environment: Mapping[str, Any], name: str) -> str | None:
    value = environment.get(name)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"the recorded {name} is {type(value).__name__}, not text: the recording is damaged")
    return value or None


def _differences(recorded: Mapping[str, Any], moved: Moved) -> Iterator[str]:
    """Files, versions and variables that differ from the recorded ones, as far as can be said without torch."""
    sources, versions = ({} if not isinstance(found, dict) else found for found in map(recorded.get, _COMPARED))
    present = {moved.path(str(path)): file_digest(moved.path(str(path))) for path in sources}
    yield from (f"{clean(path)}: the file is gone" for path, digest in present.items() if digest is None)
    if not sources:
        yield from _by_time(recorded, moved)
    there = {path: digest for path, digest in sources.items() if present[moved.path(str(path))] is not None}
    now = {
        "sources": present,
        "python": platform.python_version(),
        "versions": {name: _version(name, str(version)) for name, version in versions.items()},
        "environment": redact_environment(os.environ),
    }
    yield from map(clean, changes({**recorded, "sources": there, "device": {}, "numerics": {}}, now, moved=moved.pair))


def _by_time(recorded: Mapping[str, Any], moved: Moved) -> Iterator[str]:
    """What can be said of the script of a run that kept no digest of it: whether it was written after the run began."""
    script = _text(recorded, "script")
    try:
        started = datetime.fromisoformat(str(recorded.get("started"))).timestamp()
        path = Path(moved.path(script or ""))
        later = path.stat().st_mtime > started + WHOLE_SECOND if script is not None else None
    except (ValueError, OSError):
        later = None
    if later is None:
        yield NO_SOURCE
    elif later:
        yield f"{clean(str(path))}: the file was written after the run began"


_COMPARED = ("sources", "versions")


def _version(package: str, recorded: str) -> str:
    """The installed version; torch's own number also says what it was built for (``2.6.0+cpu``)."""
    try:
        found = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return "absent"
    return recorded if found.partition("+")[0] == recorded.partition("+")[0] else found

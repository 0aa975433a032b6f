"""Finished trials on disk, beside the incident: one JSON file each, written atomically.

``incidents/trials/<bundle>/`` for a bundle, ``trials/`` in a run folder. The file name is a hash of the spec, the
incident, the script and the versions, so an outcome is reused only if none of them changed. What was concluded from
them (the answer, the results of commands) also goes into the bundle, in a folder that its manifest does not list: a
bundle that is copied elsewhere has it, and its sealed files are as they were.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.experiments.specs import Outcome, Spec
from steadytrain.storage.bundle import is_bundle, write_json
from steadytrain.storage.left_overs import clear_beside

SCHEMA = "steadytrain.outcome/1"
FOLDER = "trials"
COPY = "answer"
"""The folder in a bundle with copies of what was concluded."""

OUTCOME_BYTES_MAX = 16 << 20


def trials_folder(source: Path) -> Path:
    """The folder for trial results of a bundle or a run. It may not exist yet."""
    source = source.absolute()
    return source.parent / FOLDER / source.name if is_bundle(source) else source / FOLDER


def result_file(source: Path, name: str) -> Path:
    """The file of a conclusion: that beside the bundle or in the run, or else the copy in the bundle. It may not exist
    yet."""
    beside = trials_folder(source) / name
    return beside if beside.exists() or not is_bundle(source) else source / COPY / name


def write_result(source: Path, name: str, data: Mapping[str, Any]) -> None:
    """Write a conclusion as JSON, and its copy into the bundle. A bundle that is read-only gets no copy.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    folder = trials_folder(source)
    folder.mkdir(parents=True, exist_ok=True)
    clear_beside(folder)
    write_json(folder / name, data)
    if is_bundle(source):
        with suppress(OSError):
            (source / COPY).mkdir(exist_ok=True)
            clear_beside(source / COPY)
            write_json(source / COPY / name, data)


class Finished:
    """The finished trials of one bundle or run.

    Args:
        source: the bundle or the run folder.
        environment: the document of the recorded run, which names the script.
    """

    def __init__(self, source: Path, environment: Mapping[str, Any]) -> None:
        self.folder = trials_folder(source)
        self._identity = _identity(source, environment)

    def path(self, spec: Spec) -> Path:
        text = f"{spec.key} {self._identity}"
        return self.folder / f"{spec.trial}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def read(self, spec: Spec) -> Outcome | None:
        """The outcome of ``spec``, None if it was not run, could not be started, or its file is damaged."""
        path = self.path(spec)
        try:
            data = read_json(path, bytes_max=OUTCOME_BYTES_MAX)
            outcome = Outcome.from_json(data["outcome"]) if data["schema"] == SCHEMA else None
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            return None
        return outcome if outcome is not None and outcome.spec == spec and outcome.lasts else None

    def write(self, outcome: Outcome) -> None:
        """Store an outcome.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.path(outcome.spec), {"schema": SCHEMA, "outcome": outcome.to_json()})


def _identity(source: Path, environment: Mapping[str, Any]) -> str:
    from importlib.metadata import PackageNotFoundError, version

    parts = [source.name, json.dumps(environment.get("argv"), default=str)]
    for name in ("steadytrain", "torch"):
        try:
            parts.append(version(name))
        except PackageNotFoundError:
            parts.append("?")
    for file in (environment.get("script"), source / "environment.json", source / "run.json"):
        try:
            parts.append(hashlib.sha256(Path(str(file)).read_bytes()).hexdigest() if file else "")
        except OSError:
            parts.append("")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()

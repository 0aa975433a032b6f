"""The files of a recording: the tape (the inputs of the last steps) and the snapshots (state after a step).

::

    tape/000065-000071.json          inputs of steps 65 to 71: trees, random states, digests
    tape/000065-000071.safetensors   their tensors, each once, keyed by its digest
    snapshots/step-000064/state.json           optimizer trees, scalers, the digest of every tensor
    snapshots/step-000064/state.safetensors    weights, buffers, optimizer state

They lie in the run folder during the run (those of a second optimizer under ``streams/<stream>/``), and under
``replay/`` in an incident bundle. The JSON file is renamed into
place last, so half-written files of a killed process do not count as a chunk or snapshot. The live half writes them
(``capture/snapshots/tape.py``, ``capture/snapshots/snapshots.py``). This module finds them and reads their documents,
without torch.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.own_errors import own
from steadytrain.storage.bundle import RECORDING

TAPE_VERSION = 1
SNAPSHOT_VERSION = 1
TAPE_FORMAT = "steadytrain.tape"
SNAPSHOT_FORMAT = "steadytrain.snapshot"
TAPE_FOLDER = "tape"
SNAPSHOTS_FOLDER = "snapshots"
REPLAY_FOLDER = RECORDING
REPLAY_FILE = "replay.json"
STATE_FILE = "state.json"
STATE_TENSORS = "state.safetensors"
MODEL_LEAD = "model/"
"""Prefix of the names of parameters and buffers among the tensors of a snapshot."""

OTHERS_LEAD = "others/"
"""Prefix, before a number, of the tensors of the optimizers that take turns with the recorded one."""

STREAMS_FOLDER = "streams"
"""Folder of the recordings of optimizers other than the first, one folder each."""

PART = ".part"
"""Suffix of a file that is still being written."""

LEAD_STEPS = 8
"""Steps of the tape that are kept before the oldest snapshot: a loader fetches batches ahead, in earlier steps."""

GAP = "the run rested in between (--every-step records all), or these steps are no longer kept"

DOCUMENT_BYTES_MAX = 256 << 20
_CHUNK_NAME = re.compile(r"(\d{6,})-(\d{6,})\.json")
_SNAPSHOT_NAME = re.compile(r"step-(\d{6,})")


@dataclass(frozen=True)
class Chunk:
    """Consecutive steps of the tape. ``document`` is its JSON file; its tensors lie beside it."""

    document: Path
    first: int
    last: int

    @property
    def tensors(self) -> Path:
        return self.document.with_suffix(".safetensors")


@dataclass(frozen=True)
class Snapshot:
    """State after ``step``: a folder with two files."""

    folder: Path
    step: int

    @property
    def document(self) -> Path:
        return self.folder / STATE_FILE

    @property
    def tensors(self) -> Path:
        return self.folder / STATE_TENSORS


@dataclass(frozen=True)
class Recording:
    """The tape and the snapshots in one folder, oldest first. If chunks overlap, the newest counts."""

    folder: Path
    chunks: tuple[Chunk, ...]
    snapshots: tuple[Snapshot, ...]

    @property
    def last_step(self) -> int | None:
        """The last step on the tape."""
        return max((chunk.last for chunk in self.chunks), default=None)

    def stretches(self) -> tuple[tuple[int, int], ...]:
        """The ranges of steps on the tape without gaps. Chunks may overlap."""
        found: list[tuple[int, int]] = []
        for chunk in self.chunks:
            if found and chunk.first <= found[-1][1] + 1:
                found[-1] = (found[-1][0], max(found[-1][1], chunk.last))
            else:
                found.append((chunk.first, chunk.last))
        return tuple(found)

    def reaches(self, first: int) -> int:
        """The last step that can be replayed from ``first`` on without a gap; ``first - 1`` if there is none."""
        last = first - 1
        for chunk in self.chunks:
            if chunk.first <= last + 1 <= chunk.last:
                last = chunk.last
        return last

    def starts(self) -> list[int]:
        """The steps at which a replay can start: those on the tape that follow a snapshot."""
        return [shot.step + 1 for shot in self.snapshots if self.reaches(shot.step + 1) > shot.step]

    def snapshot_after(self, step: int) -> Snapshot | None:
        return next((shot for shot in self.snapshots if shot.step == step), None)

    def chunk_of(self, step: int) -> Chunk | None:
        return next((chunk for chunk in reversed(self.chunks) if chunk.first <= step <= chunk.last), None)

    def files(self) -> Iterator[Path]:
        """The paths of all files, relative to the folder."""
        for chunk in self.chunks:
            yield from (chunk.tensors.relative_to(self.folder), chunk.document.relative_to(self.folder))
        for shot in self.snapshots:
            yield from (shot.tensors.relative_to(self.folder), shot.document.relative_to(self.folder))

    def around(self, onset: int, *, last: int, size_bytes_max: int) -> Recording:
        """The part of the recording that replays ``onset`` to ``last``, with as much before it as fits.

        It starts at the newest snapshot before ``onset`` from which the tape reaches ``last`` (or the oldest snapshot
        after ``onset``), and includes everything after that. Older snapshots join, newest first, while the total stays
        within ``size_bytes_max``.
        """
        able = [shot for shot in self.snapshots if shot.step < last <= self.reaches(shot.step + 1)]
        before = [shot for shot in able if shot.step < onset]
        kept = [*before[-1:], *(shot for shot in able if shot.step >= onset)]
        if not kept:
            return Recording(self.folder, (), ())
        for shot in reversed(before[:-1]):
            part = self._from([shot, *kept], last)
            if sum((self.folder / name).stat().st_size for name in part.files()) > size_bytes_max:
                break
            kept = [shot, *kept]
        return self._from(kept, last)

    def _from(self, snapshots: list[Snapshot], last: int) -> Recording:
        first = snapshots[0].step + 1 - LEAD_STEPS
        chunks = tuple(chunk for chunk in self.chunks if chunk.last >= first and chunk.first <= last)
        return Recording(self.folder, chunks, tuple(snapshots))

    def choose(self, *, first: int | None, until: int | None, onset: int | None = None) -> tuple[Snapshot, int]:
        """The snapshot to start from and the last step to replay.

        ``until`` defaults to the last step on the tape. ``first`` defaults to the step after the newest snapshot before
        ``until``; with ``onset``, to the newest start at or before ``onset`` from which the tape reaches ``until``.

        Raises:
            UsageError: there is no such snapshot, or the tape has a gap.
        """
        if not self.chunks:
            raise UsageError(f"{self.folder}: no tape of its steps was kept, so they cannot be replayed")
        starts = self.starts()
        if not starts:
            raise UsageError(f"{self.folder}: no snapshot before the steps on the tape was kept; a replay has no start")
        last = until if until is not None else self.last_step
        assert last is not None
        if first is None:
            before = [start for start in starts if start <= last]
            if not before:
                raise UsageError(f"step {last}: the first step that can be replayed is {starts[0]}")
            able = [start for start in before if onset is not None and start <= onset and self.reaches(start) >= last]
            first = able[-1] if able else before[-1]
        if first not in starts:
            raise UsageError(f"step {first}: a replay starts after a snapshot, at one of {_listed(starts)}")
        if last < first:
            raise UsageError(f"step {last} comes before {first}, the first step of the replay")
        reached = self.reaches(first)
        if reached < last:
            following = next((chunk.first for chunk in self.chunks if chunk.first > reached), None)
            gap = "" if following is None else f" and goes on at step {following}: {GAP}"
            raise UsageError(f"step {last}: from step {first} on, the tape reaches only step {reached}{gap}")
        shot = self.snapshot_after(first - 1)
        assert shot is not None
        return shot, last


def chunk_name(first: int, last: int) -> str:
    return f"{first:06d}-{last:06d}"


def snapshot_name(step: int) -> str:
    return f"step-{step:06d}"


def recording_folder(run: Path, stream: str) -> Path:
    """Where a run keeps the recording of ``stream`` (``main`` is the first)."""
    return run if stream == "main" else run / STREAMS_FOLDER / stream


def find_recording(source: Path) -> Recording:
    """The recording of a bundle or of a run folder, empty if nothing was kept."""
    folder = source / REPLAY_FOLDER if (source / REPLAY_FOLDER).is_dir() else source
    return Recording(folder, tuple(find_chunks(folder)), tuple(find_snapshots(folder)))


def recording_note(source: Path) -> str | None:
    """The bundle's note on a missing or incomplete recording, None if there is none."""
    try:
        note = read_json(source / REPLAY_FOLDER / REPLAY_FILE, bytes_max=DOCUMENT_BYTES_MAX).get("note")
    except own(OSError, ValueError, RecursionError, AttributeError):
        return None
    return note if isinstance(note, str) else None


def find_chunks(folder: Path) -> list[Chunk]:
    """The chunks of the tape under ``folder``, oldest first."""
    found = []
    for path in (folder / TAPE_FOLDER).glob("*.json"):
        match = _CHUNK_NAME.fullmatch(path.name)
        if match is not None and path.with_suffix(".safetensors").is_file():
            found.append(Chunk(path, int(match[1]), int(match[2])))
    return sorted(found, key=lambda chunk: (chunk.first, chunk.last))


def find_snapshots(folder: Path) -> list[Snapshot]:
    """The complete snapshots under ``folder``, oldest first."""
    found = []
    for path in (folder / SNAPSHOTS_FOLDER).glob("step-*"):
        match = _SNAPSHOT_NAME.fullmatch(path.name)
        if match is not None and (path / STATE_FILE).is_file() and (path / STATE_TENSORS).is_file():
            found.append(Snapshot(path, int(match[1])))
    return sorted(found, key=lambda shot: shot.step)


def read_chunk(chunk: Chunk) -> dict[str, Any]:
    """Read the document of a chunk.

    Raises:
        UsageError: damaged, of a newer format, or its tensors are truncated.
    """
    return _read(chunk.document, chunk.tensors, TAPE_FORMAT, TAPE_VERSION)


def read_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Read the document of a snapshot.

    Raises:
        UsageError: damaged, of a newer format, or its tensors are truncated.
    """
    return _read(snapshot.document, snapshot.tensors, SNAPSHOT_FORMAT, SNAPSHOT_VERSION)


def size_bytes(folder: Path) -> int:
    """Disk space of the recording under ``folder``."""
    recording = find_recording(folder)
    return sum((recording.folder / name).stat().st_size for name in recording.files())


def remove_chunk(chunk: Chunk) -> None:
    """Remove the document first, so that an interrupted removal leaves no chunk."""
    chunk.document.unlink(missing_ok=True)
    chunk.tensors.unlink(missing_ok=True)


def remove_snapshot(snapshot: Snapshot) -> None:
    snapshot.document.unlink(missing_ok=True)
    shutil.rmtree(snapshot.folder, ignore_errors=True)


def remove_recording(folder: Path) -> None:
    """Remove the whole recording, unfinished files too."""
    shutil.rmtree(folder / TAPE_FOLDER, ignore_errors=True)
    shutil.rmtree(folder / SNAPSHOTS_FOLDER, ignore_errors=True)


def _read(document: Path, tensors: Path, name: str, version: int) -> dict[str, Any]:
    try:
        data = read_json(document, bytes_max=DOCUMENT_BYTES_MAX)
        size = tensors.stat().st_size
    except UsageError:
        raise
    except own(OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{document}: not readable ({error}); replay from another snapshot") from None
    if not isinstance(data, dict) or data.get("format") != name:
        raise UsageError(f"{document}: not a {name} document")
    refuse_newer(document, data.get("version"), version)
    if size != data.get("tensor_bytes"):
        raise UsageError(f"{tensors}: {size} bytes, its document says {data.get('tensor_bytes')}: truncated or changed")
    return data


def _listed(steps: list[int]) -> str:
    shown = ", ".join(map(str, steps[:8]))
    return shown if len(steps) <= 8 else f"{shown}, ... {steps[-1]}"

"""What an incident bundle holds (rows, text, weights, code), and a smaller copy without its data or its weights.

Reads only JSON documents and the headers of tensor files: no tensor, no torch, no code of the bundle.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import check_json, open_regular, read_json
from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import MANIFEST, RECORDING, Bundle, open_bundle, seal
from steadytrain.storage.staged_bundle import update_incident
from steadytrain.storage.tape_files import DOCUMENT_BYTES_MAX, REPLAY_FILE, SNAPSHOTS_FOLDER, TAPE_FOLDER

LEFT_OUT = "left out by `steadytrain bundle strip`"
"""What a stripped bundle says of its batches or weights."""

HEADER_BYTES_MAX = 64 << 20
NODES_MAX = 5_000_000

DATA_FILES = ("batches.json", "batches.safetensors")
WEIGHT_FILES = ("model.safetensors", "optimizer.json", "optimizer.safetensors")
_TAPE, _SNAPSHOTS = f"{RECORDING}/{TAPE_FOLDER}/", f"{RECORDING}/{SNAPSHOTS_FOLDER}/"
_KINDS = {
    "incident.json": "findings",
    "environment.json": "settings",
    "locate.json": "findings",
    "source.diff": "code",
    f"{RECORDING}/{REPLAY_FILE}": "findings",
    **dict.fromkeys(DATA_FILES, "data"),
    **dict.fromkeys(WEIGHT_FILES, "weights"),
    **dict.fromkeys(("rng.json", "rng.safetensors"), "random-state"),
    **dict.fromkeys(("window.json", "window.steps", "scalars.json", "scalars.steps"), "curves"),
}

_ANEW = "diagnose and trial run the script from its start"
REPLAY_NEEDS_DATA = f"replay, locate, onset and repro cannot feed the recorded batches; {_ANEW}"
REPLAY_NEEDS_WEIGHTS = f"replay, locate, onset and repro cannot restore the recorded state; {_ANEW}"


@dataclass(frozen=True)
class HeldFile:
    """A file of a bundle: ``kind`` is data, weights, code, settings, findings, curves, random-state or other."""

    name: str
    kind: str
    size_bytes: int


@dataclass(frozen=True)
class Contents:
    """What a bundle holds. Counts of tensors and values are those of the headers of its tensor files."""

    path: str
    run: str
    step: int
    files: tuple[HeldFile, ...]
    rows: dict[str, int]
    text: dict[str, int]
    weights: dict[str, int]
    code: dict[str, int]
    settings: dict[str, int]
    left_out: tuple[str, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)

    def size_of(self, kind: str) -> int:
        """Bytes of the files of one kind."""
        return sum(file.size_bytes for file in self.files if file.kind == kind)

    def to_json(self) -> dict[str, Any]:
        """The ``steadytrain.bundle-contents/1`` document."""
        return {"schema": "steadytrain.bundle-contents/1", **asdict(self), "size_bytes": self.size_bytes}


def inspect_bundle(path: Path) -> Contents:
    """List what the bundle at ``path`` holds.

    Raises:
        UsageError: not a bundle, damaged, or a document in it is too large to read.
    """
    bundle = open_bundle(path)
    files = tuple(HeldFile(name, _kind(name), (path / name).stat().st_size) for name in _held(path))
    held = {file.name: file.kind for file in files}
    documents = [name for name, kind in held.items() if kind == "data" and name.endswith(".json")]
    strings = [text for name in documents for text in _strings(path, name)]
    notes = {"data": bundle.incident.batch_note, "weights": bundle.incident.state_note}
    return Contents(
        path=str(path),
        run=bundle.incident.run,
        step=bundle.incident.step,
        files=files,
        rows={"calls": _calls(path) if "batches.json" in held else 0, **_tensors(path, held, "data")},
        text={"strings": len(strings), "characters": sum(map(len, strings))},
        weights=_tensors(path, held, "weights"),
        code=_code(bundle, held),
        settings=_settings(bundle.environment),
        left_out=tuple(part for part, note in notes.items() if note == LEFT_OUT),
    )


def strip_bundle(path: Path, output: Path, *, data: bool, weights: bool) -> Contents:
    """Write a copy of the bundle without its data or its weights into the new folder ``output``.

    Raises:
        UsageError: not a bundle, damaged, ``output`` exists, or nothing is to be left out.
        OSError: the disk does not take it; no part of the copy stays.
    """
    if not data and not weights:
        raise UsageError("nothing to leave out: give --no-data, --no-weights or both")
    if os.path.lexists(output):
        raise UsageError(f"{output}: exists already; name a new folder")
    if not output.absolute().parent.is_dir():
        raise UsageError(f"{output.absolute().parent}: no such folder")
    bundle = open_bundle(path)
    dropped = {kind for kind, drops in (("data", data), ("weights", weights)) if drops}
    made = Path(tempfile.mkdtemp(prefix=f".{output.name}.", dir=output.absolute().parent))
    try:
        for name in _held(path):
            if _kind(name) not in dropped and not (name.startswith(f"{RECORDING}/") and dropped == {"data", "weights"}):
                (made / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path / name, made / name, follow_symlinks=False)
        incident = replace(bundle.incident, batch_note=LEFT_OUT) if data else bundle.incident
        (made / MANIFEST).unlink(missing_ok=True)
        seal(made)
        update_incident(made, replace(incident, state_note=LEFT_OUT) if weights else incident)
        made.chmod(0o755)
        os.rename(made, output)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise
    return inspect_bundle(output)


def _held(path: Path) -> list[str]:
    """The files of the manifest that are there; ``open_bundle`` has refused links and paths that lead outside."""
    names = json.loads((path / MANIFEST).read_text(encoding="utf-8"))["files"]
    return sorted(name for name in names if (path / name).is_file())


def _kind(name: str) -> str:
    if name.startswith(_TAPE):
        return "data"
    return "weights" if name.startswith(_SNAPSHOTS) else _KINDS.get(name, "other")


def _strings(path: Path, name: str) -> Iterator[str]:
    """The strings among the recorded values: leaves ``{"value": "..."}`` of the value trees."""
    waiting: list[Any] = [_document(path / name)]
    seen = 0
    while waiting and seen < NODES_MAX:
        node, seen = waiting.pop(), seen + 1
        if isinstance(node, dict):
            if isinstance(node.get("value"), str):
                yield node["value"]
            waiting.extend(node.values())
        elif isinstance(node, list) and not (node and node[0] in _OWN):
            waiting.extend(node)


_OWN = ("random", "autocast")
"""Entries of a recorded call that hold names of ours or of torch, not the user's text."""


def _calls(path: Path) -> int:
    calls = _document(path / "batches.json").get("calls")
    return len(calls) if isinstance(calls, list) else 0


def _document(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file, bytes_max=DOCUMENT_BYTES_MAX)
    except UsageError:
        raise
    except ValueError as error:
        raise UsageError(f"{file}: not readable as JSON ({error})") from None
    return found if isinstance(found, dict) else {}


def _tensors(path: Path, held: dict[str, str], kind: str) -> dict[str, int]:
    """How many tensors and values the files of one kind hold, by their headers."""
    tensors, values = 0, 0
    for name, of in held.items():
        if of == kind and name.endswith(".safetensors"):
            shapes = [entry.get("shape") for entry in _header(path / name).values() if isinstance(entry, dict)]
            sizes = [shape for shape in shapes if isinstance(shape, list) and all(type(n) is int for n in shape)]
            tensors += len(sizes)
            values += sum(math.prod(shape) for shape in sizes)
    return {"tensors": tensors, "values": values}


def _header(file: Path) -> dict[str, Any]:
    with open_regular(file) as opened:
        size = int.from_bytes(opened.read(8), "little")
        if size > min(HEADER_BYTES_MAX, file.stat().st_size):
            raise UsageError(f"{file}: its header claims {size} bytes; refused")
        try:
            text = opened.read(size) or b"{}"
            check_json(text, file)
            found = json.loads(text)
        except UsageError:
            raise
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{file}: its header is not readable ({error})") from None
    return {name: entry for name, entry in found.items() if name != "__metadata__"} if isinstance(found, dict) else {}


def _code(bundle: Bundle, held: dict[str, str]) -> dict[str, int]:
    diff = bundle.path / "source.diff"
    lines = diff.read_text(encoding="utf-8", errors="replace").count("\n") if "source.diff" in held else 0
    located = bundle.finding.located
    return {"diff_lines": lines, "quoted_lines": int(located is not None and bool(located.code))}


def _settings(environment: dict[str, Any]) -> dict[str, int]:
    """How many settings of the script, arguments, environment variables and names of source files are in it."""
    named = {"configuration": "settings", "argv": "arguments", "environment": "variables", "sources": "source_paths"}
    held = {name: environment.get(field) for field, name in named.items()}
    return {name: len(value) if isinstance(value, (list, dict)) else 0 for name, value in held.items()}

"""The incident bundle: one folder with everything needed to analyse an incident on another machine.

``incident.json`` (the document of ``show --json``), ``window`` (the steps before it), ``scalars`` (for a symptom: more
steps without their tensors), ``environment.json``, ``batches``, ``rng``, ``model`` and ``optimizer`` (a JSON tree plus
safetensors each), ``source.diff``. Opening a bundle runs no code, follows no path outside it, and checks every file
against ``manifest.json``. The manifest is written last, so an interrupted bundle has none and is refused.

The live half, which has torch, writes the tensor files; this half reads only their headers.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import open_regular, read_json
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.incident import Finding, Incident
from steadytrain.core.model import Window
from steadytrain.core.own_errors import own
from steadytrain.storage.documents import as_json
from steadytrain.storage.processes import process_mark
from steadytrain.storage.segments import read_segment

BUNDLE_VERSION = 1
MANIFEST = "manifest.json"
NEXT = "next"
"""In the manifest, inside the facts of a document that is being replaced: those of its successor."""

SCALARS_NAME = "scalars"
"""A longer window than ``window``, without gradient norms: the input of detectors that look far back."""

RECORDING = "replay"
"""The only folder in a bundle: tape and snapshots of the steps before the incident (``storage/tape_files.py``)."""

JSON_BYTES_MAX = 64 << 20
REPORT_HASHED_BYTES_MAX = 16 << 20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. ``finding`` is the newest one, from ``steadytrain locate`` if it was run."""

    path: Path
    incident: Incident
    environment: dict[str, Any]
    window: Window

    @property
    def finding(self) -> Finding:
        return self.incident.finding

    @property
    def scalars(self) -> Window:
        """The longest stored window of scalars."""
        longer = self.path / f"{SCALARS_NAME}.steps"
        return read_segment(longer) if longer.is_file() else self.window


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as JSON atomically: a reader sees the old file or the new one."""
    written = write_beside(path, data)
    try:
        os.replace(written, path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def write_beside(path: Path, data: Any, *, durable: bool = False) -> Path:
    """Write ``data`` as JSON into a hidden file beside ``path`` and return it; ``durable``: flushed to disk."""
    text = as_json(data, indent=1, ensure_ascii=False, allow_nan=False)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.{process_mark()}.")
    try:
        # A lone surrogate (from a file name that is not UTF-8) becomes its JSON escape, and reads back unchanged.
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text + "\n")
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return Path(temporary)


def seal(path: Path, *changed: str) -> None:
    """Write the manifest of ``path``: name, size and SHA-256 of every file.

    With ``changed``, only the files of these names are hashed again; the others keep their manifest entries.
    """
    known: dict[str, Any] = read_manifest(path)["files"] if changed else {}
    files = {
        name: known[name] if name in known and name not in changed else file_facts(path / name, name)
        for name in _names_in(path)
        if name != MANIFEST
    }
    write_json(path / MANIFEST, {"format": "steadytrain.bundle", "version": BUNDLE_VERSION, "files": files})


def _names_in(path: Path) -> list[str]:
    """The files in the manifest: those in the bundle itself and those in its recording."""
    own = [file.name for file in sorted(path.iterdir()) if file.is_file() and not file.name.startswith(".")]
    recording = (file for file in sorted((path / RECORDING).rglob("*")) if file.is_file())
    return own + [file.relative_to(path).as_posix() for file in recording]


def file_facts(file: Path, name: str) -> dict[str, Any]:
    """Size and SHA-256. Recorded tensors, which can take gigabytes, get only their size: their digests are in the
    documents beside them.
    """
    size = file.stat().st_size
    return {"bytes": size} if _is_recorded_tensors(name) else {"bytes": size, "sha256": sha256_of(file)}


def _is_recorded_tensors(name: str) -> bool:
    return name.startswith(f"{RECORDING}/") and name.endswith(".safetensors")


def is_bundle(path: Path) -> bool:
    return (path / MANIFEST).is_file() or (path / "incident.json").is_file()


def open_bundle(path: Path) -> Bundle:
    """Open and verify a bundle.

    Raises:
        UsageError: not a bundle, incomplete, changed since it was written, or of a newer format.
    """
    return _open(path, hashed_bytes_max=None)


def open_for_report(path: Path) -> Bundle:
    """Like :func:`open_bundle`, but check files over ``REPORT_HASHED_BYTES_MAX`` only by their size.

    A report reads no tensors, so hashing gigabytes of them would only cost time.
    """
    return _open(path, hashed_bytes_max=REPORT_HASHED_BYTES_MAX)


def _open(path: Path, *, hashed_bytes_max: int | None) -> Bundle:
    files = read_manifest(path)["files"]
    for name, facts in files.items():
        _verify(path, name, facts, hashed_bytes_max=hashed_bytes_max)
    for needed in ("incident.json", "environment.json", "window.json", "window.steps"):
        if needed not in files:
            raise UsageError(f"{path}: {needed} is missing from the bundle")
    data = _read_json(path / "incident.json", missing="the bundle is damaged")
    environment = _read_json(path / "environment.json", missing="the bundle is damaged")
    try:
        incident = Incident.from_json(data)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path / 'incident.json'}: not an incident document ({error!r})") from None
    return Bundle(path=path, incident=incident, environment=environment, window=read_segment(path / "window.steps"))


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the bundle ``path``, whose ``files`` are a dictionary.

    Raises:
        UsageError: there is none, it is damaged, or of a newer format.
    """
    manifest = _read_json(path / MANIFEST, missing="writing was interrupted, or this is not a bundle")
    if manifest.get("format") != "steadytrain.bundle":
        raise UsageError(f"{path}: {MANIFEST} is not that of a steadytrain bundle")
    refuse_newer(path, manifest.get("version"), BUNDLE_VERSION, what="bundle")
    if not isinstance(manifest.get("files"), dict):
        raise UsageError(f"{path}: {MANIFEST} lists no files; the bundle is damaged")
    return manifest


def _verify(path: Path, name: Any, facts: Any, *, hashed_bytes_max: int | None) -> None:
    if not isinstance(name, str) or not _lies_inside(name):
        raise UsageError(f"{path}: {MANIFEST} names {name!r}, a path outside the bundle; refused")
    if not isinstance(facts, dict):
        raise UsageError(f"{path}: {MANIFEST} does not list {name}; the bundle is damaged")
    file = path / name
    if name.startswith(f"{RECORDING}/") and not os.path.lexists(file):
        return  # deleted to save space: the rest still allows everything but a replay of its steps
    links = any(folder.is_symlink() for folder in (file, *file.parents[: name.count("/")]))
    if links or not file.is_file():
        raise UsageError(f"{path}: {name} is missing from the bundle")
    size = file.stat().st_size
    after = facts.get(NEXT)
    if isinstance(after, dict) and size == after.get("bytes") and sha256_of(file) == after.get("sha256"):
        return  # its replacement was cut off after the document, before the manifest
    if size != facts.get("bytes"):
        raise UsageError(
            f"{path}: {name} has {size} bytes, the manifest says {facts.get('bytes')}: truncated or changed"
        )
    if (hashed_bytes_max is not None and size > hashed_bytes_max) or _is_recorded_tensors(name):
        return
    try:
        digest = sha256_of(file)
    except own(OSError) as error:
        raise UsageError(f"{file}: cannot be read ({error.strerror})") from None
    if digest != facts.get("sha256"):
        raise UsageError(f"{path}: {name} does not match its checksum: changed since it was written")


def _lies_inside(name: str) -> bool:
    """Whether a manifest may list ``name``: a plain file name, or a path of plain names under the recording's
    folder.
    """
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and Path(part).name == part for part in parts)
    return plain and (len(parts) == 1 or parts[0] == RECORDING)


def _read_json(path: Path, *, missing: str) -> dict[str, Any]:
    if path.is_symlink() or not path.is_file():
        raise UsageError(f"{path.parent}: no {path.name} ({missing})")
    try:
        data = read_json(path, bytes_max=JSON_BYTES_MAX)
    except own(OSError, ValueError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a JSON object was expected")
    return data


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, as hexadecimal digits.

    Raises:
        UsageError: not a regular file, or mostly holes.
    """
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()

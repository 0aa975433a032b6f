"""The incident bundle: one folder that holds all that is needed to look into an incident elsewhere.

``incident.json`` (the document of ``show --json``), ``window`` (the steps before it), ``environment.json``,
``batches``, ``rng``, ``model`` and ``optimizer`` (a JSON tree plus safetensors each), ``source.diff``. Opening one
runs no code, follows no path that leads outside, and checks every file against ``manifest.json``, which is written
last: a bundle whose writing was cut off has none and says so.

The tensor files are written by the live half, which has torch; this half reads their headers only.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.errors import UsageError
from steadytrain.model import Finding, Incident, Window
from steadytrain.store.segments import read_segment

BUNDLE_VERSION = 1
MANIFEST = "manifest.json"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Bundle:
    """An opened bundle. ``finding`` is the newest: that of ``steadytrain locate`` where it was run."""

    path: Path
    incident: Incident
    environment: dict[str, Any]
    window: Window

    @property
    def finding(self) -> Finding:
        return self.incident.finding


def write_json(path: Path, data: Any) -> None:
    """Write ``data`` as JSON so that a reader sees the old file or the new one, never a part."""
    text = json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def seal(path: Path) -> None:
    """Write the manifest over what lies in ``path``: name, size and SHA-256 of every file."""
    files = {
        file.name: {"bytes": file.stat().st_size, "sha256": _sha256(file)}
        for file in sorted(path.iterdir())
        if file.is_file() and file.name != MANIFEST and not file.name.startswith(".")
    }
    write_json(path / MANIFEST, {"format": "steadytrain.bundle", "version": BUNDLE_VERSION, "files": files})


def is_bundle(path: Path) -> bool:
    return (path / MANIFEST).is_file() or (path / "incident.json").is_file()


def open_bundle(path: Path) -> Bundle:
    """Open and verify a bundle.

    Raises:
        UsageError: not a bundle, cut off, changed since it was written, or of a newer format.
    """
    manifest = _read_json(path / MANIFEST, missing="its writing was cut off, or it is no bundle")
    if manifest.get("format") != "steadytrain.bundle":
        raise UsageError(f"{path}: {MANIFEST} is not that of a steadytrain bundle")
    version = manifest.get("version")
    if not isinstance(version, int) or version > BUNDLE_VERSION:
        raise UsageError(
            f"{path}: bundle format version {version} is newer than this steadytrain reads ({BUNDLE_VERSION}); "
            "upgrade steadytrain"
        )
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise UsageError(f"{path}: {MANIFEST} lists no files; the bundle is damaged")
    for name, facts in files.items():
        _verify(path, name, facts)
    for needed in ("incident.json", "environment.json", "window.json", "window.steps"):
        if needed not in files:
            raise UsageError(f"{path}: {needed} is missing from the bundle")
    data = _read_json(path / "incident.json", missing="the bundle is damaged")
    environment = _read_json(path / "environment.json", missing="the bundle is damaged")
    try:
        incident = Incident.from_json(data)
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path / 'incident.json'}: not an incident document ({error!r})") from None
    return Bundle(path=path, incident=incident, environment=environment, window=read_segment(path / "window.steps"))


def update_incident(path: Path, incident: Incident) -> None:
    """Replace ``incident.json`` (after a later look found more) and seal the bundle again."""
    write_json(path / "incident.json", incident.to_json())
    seal(path)


def _verify(path: Path, name: Any, facts: Any) -> None:
    if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
        raise UsageError(f"{path}: {MANIFEST} names {name!r}, a path outside the bundle; refused")
    file = path / name
    if file.is_symlink() or not file.is_file():
        raise UsageError(f"{path}: {name} is missing from the bundle")
    size = file.stat().st_size
    if size != facts.get("bytes"):
        raise UsageError(
            f"{path}: {name} has {size} bytes, the manifest says {facts.get('bytes')}: truncated or changed"
        )
    if _sha256(file) != facts.get("sha256"):
        raise UsageError(f"{path}: {name} does not match its checksum: changed since it was written")


def _read_json(path: Path, *, missing: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{path.parent}: no {path.name} ({missing})") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(data, dict):
        raise UsageError(f"{path}: a JSON object was expected")
    return data


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()

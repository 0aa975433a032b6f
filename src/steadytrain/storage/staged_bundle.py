"""A bundle appears whole or not at all, and changes without a moment in which it is damaged.

A new bundle is written into a hidden folder beside its place, with its manifest, flushed to disk, and renamed. A change
of one document takes three renames: the manifest with the old and the new facts of the document, the document, the
manifest with the new facts alone. A process may be killed between any two of them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import platform
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steadytrain.core.incident import Incident
from steadytrain.storage.bundle import MANIFEST, NEXT, file_facts, read_manifest, write_json
from steadytrain.storage.numbered_files import sync

STAGE = ".stage-"
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Gives the folder to write the bundle ``path`` into; it must not exist yet. Afterwards the bundle is in its place.

    If the block raises, nothing remains. What earlier processes left is removed first.

    Raises:
        OSError: the bundle cannot be written, or there is one at ``path``.
    """
    clear_stages(path.parent)
    stage = path.with_name(f"{STAGE}{_host()}-{os.getpid()}-{path.name}")
    try:
        yield stage
        _sync_tree(stage)
        os.rename(stage, path)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    with contextlib.suppress(OSError):
        sync(path.parent)


def change_document(bundle: Path, name: str, document: Any) -> None:
    """Replace or add the JSON document ``name`` of a bundle. A reader sees the bundle before or after the change.

    Raises:
        OSError: it cannot be written; the bundle is as before.
        UsageError: the bundle has no readable manifest.
    """
    for left in bundle.glob(f".{name.rpartition('/')[2]}.*"):
        left.unlink(missing_ok=True)
    manifest = read_manifest(bundle)
    files = manifest["files"]
    target = bundle / name
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(handle)
    written = Path(temporary)
    try:
        write_json(written, document)
        facts = file_facts(written, name)
        if name in files:
            was = {key: value for key, value in files[name].items() if key != NEXT}
            write_json(bundle / MANIFEST, {**manifest, "files": {**files, name: {**was, NEXT: facts}}})
        os.replace(written, target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    write_json(bundle / MANIFEST, {**manifest, "files": dict(sorted({**files, name: facts}.items()))})


def update_incident(bundle: Path, incident: Incident) -> None:
    """Replace ``incident.json``, after a later search found more."""
    change_document(bundle, "incident.json", incident.to_json())


def clear_stages(folder: Path) -> None:
    """Remove the unfinished bundles of processes of this machine that are gone."""
    for entry in folder.glob(f"{STAGE}*"):
        host, _, rest = entry.name[len(STAGE) :].partition("-")
        process = rest.partition("-")[0]
        if host == _host() and process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(entry, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _host() -> str:
    return f"{zlib.crc32(platform.node().encode()):08x}"


def _sync_tree(folder: Path) -> None:
    for at, _, names in os.walk(folder, topdown=False):
        for name in names:
            if not os.path.islink(os.path.join(at, name)):
                sync(Path(at, name))
        sync(Path(at))

"""A bundle appears whole or not at all, and changes without a moment in which it is damaged.

A new bundle is written into a hidden folder beside its place, with its manifest, flushed to disk, and renamed. A change
of one document takes three renames: the manifest with the old and the new facts of the document, the document, the
manifest with the new facts alone. A process may be killed between any two of them. Processes that change one bundle at
the same time wait for each other.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from steadytrain.core.incident import Incident
from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.bundle import MANIFEST, NEXT, file_facts, read_manifest, write_beside
from steadytrain.storage.numbered_files import sync
from steadytrain.storage.processes import MARK, is_gone, process_mark

STAGE = ".stage-"
INCIDENTS_FOLDER = "incidents"
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_MARKED = re.compile(rf"{re.escape(STAGE)}({MARK})-")
_CODE = re.compile(r"code: (\d+)")
LOCK_WAIT_S = 10.0
SIBLINGS_MAX = 1000


@contextmanager
def staged(path: Path) -> Iterator[Path]:
    """Gives the folder to write the bundle ``path`` into; it must not exist yet. Afterwards the bundle is in its place.

    If the block raises, nothing remains. What earlier processes left is removed first.

    Raises:
        OSError: the bundle cannot be written, or there is one at ``path``.
    """
    clear_stages(path.parent)
    stage = path.with_name(f"{STAGE}{process_mark()}-{path.name}")
    try:
        yield stage
        _sync_tree(stage)
        os.rename(stage, path)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise
    with unless_it_fails(OSError):
        sync(path.parent)


def change_document(bundle: Path, name: str, document: Any) -> None:
    """Replace or add the JSON document ``name`` of a bundle. A reader sees the bundle before or after the change.

    Raises:
        OSError: it cannot be written; a reader sees the document as before.
        UsageError: the bundle has no readable manifest.
    """
    with _locked(bundle):
        _change(bundle, name, document)
        with unless_it_fails(OSError):
            sync(bundle)


def _change(bundle: Path, name: str, document: Any) -> None:
    target = bundle / name
    for place in (target, bundle / MANIFEST):
        for left in place.parent.glob(f".{place.name}.*"):
            left.unlink(missing_ok=True)
    manifest = read_manifest(bundle)
    files = manifest["files"]
    written = write_beside(target, document, durable=True)
    try:
        facts = file_facts(written, name)
        if name in files:
            was = {key: value for key, value in files[name].items() if key != NEXT}
            _replace_manifest(bundle, {**manifest, "files": {**files, name: {**was, NEXT: facts}}})
        os.replace(written, target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
    _replace_manifest(bundle, {**manifest, "files": dict(sorted({**files, name: facts}.items()))})


def _replace_manifest(bundle: Path, manifest: dict[str, Any]) -> None:
    written = write_beside(bundle / MANIFEST, manifest, durable=True)
    try:
        os.replace(written, bundle / MANIFEST)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def update_incident(bundle: Path, incident: Incident) -> None:
    """Replace ``incident.json``, after a later search found more."""
    change_document(bundle, "incident.json", incident.to_json())


def disk_is_full(error: BaseException) -> bool:
    """Whether a write failed for want of room. NumPy and safetensors say so in words alone."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in DISK_FULL
    text = str(error)
    told = _CODE.search(text)
    return (told is not None and int(told[1]) in DISK_FULL) or os.strerror(errno.ENOSPC) in text


def free_place(path: Path) -> Path:
    """``path``, or with a number after its name where there is a bundle already: a script may come to a step again."""
    place, number = path, 2
    while place.exists():
        place = path.with_name(f"{path.name}-{number}")
        number += 1
    return place


def clear_siblings(runs_dir: Path) -> None:
    """Remove the unfinished bundles in the runs of a folder, at most :data:`SIBLINGS_MAX` runs."""
    with unless_it_fails(OSError), os.scandir(runs_dir) as found:
        for _, entry in zip(range(SIBLINGS_MAX), found, strict=False):
            clear_stages(runs_dir / entry.name / INCIDENTS_FOLDER)


def clear_stages(folder: Path) -> None:
    """Remove the unfinished bundles of processes of this machine that are gone."""
    for entry in folder.glob(f"{STAGE}*"):
        mark = _MARKED.match(entry.name)
        if mark and is_gone(mark[1]):
            shutil.rmtree(entry, ignore_errors=True)


@contextmanager
def _locked(bundle: Path) -> Iterator[None]:
    """One process changes the bundle at a time. A file system without locks has none."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    folder = os.open(bundle, os.O_RDONLY)
    try:
        until = time.monotonic() + LOCK_WAIT_S
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise OSError(errno.EBUSY, "another process is changing the bundle", str(bundle)) from None
                time.sleep(0.01)
                continue
            except own(OSError):
                pass
            break
        yield
    finally:
        os.close(folder)


def _sync_tree(folder: Path) -> None:
    for at, _, names in os.walk(folder, topdown=False):
        for name in names:
            if not os.path.islink(os.path.join(at, name)):
                sync(Path(at, name))
        with _no_sync_of_folders():
            sync(Path(at))


@contextmanager
def _no_sync_of_folders() -> Iterator[None]:
    try:
        yield
    except own(OSError) as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES):
            raise


def step_and_name(bundle: Path) -> tuple[int, str]:
    """By this, bundles are in the order of their steps."""
    found = re.search(r"step-(\d+)", bundle.name)
    return (int(found.group(1)) if found else 0), bundle.name

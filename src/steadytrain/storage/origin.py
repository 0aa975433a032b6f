"""Whether a bundle or run was recorded by this user on this machine: its command carries a mark of a key of theirs.

The key is 32 random bytes in the user's state folder, made at the first recording and readable by the user alone. The
mark is an HMAC of what a relaunch runs (arguments, folder, script, module), so it survives copies, moved folders and
later results, but not another command. Without a place for a key there is no mark, and commands ask before they run.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from steadytrain.core.own_errors import own, unless_it_fails
from steadytrain.storage.documents import as_json

ORIGIN = "origin"
"""The field of ``run.json`` and ``environment.json`` that holds the mark."""

KEY_FILE = "origin.key"
KEY_BYTES = 32
SIGNED = ("argv", "cwd", "script", "module")
TEMPORARY = Path("/var/tmp")


def with_origin(document: Mapping[str, Any]) -> dict[str, Any]:
    """``document`` with the mark of this user and machine; None stands there if no key can be kept. Never raises."""
    try:
        key = _own_key()
        mark = _mark(document, key) if key is not None else None
    except own(OSError, RuntimeError, ValueError, TypeError, RecursionError):
        mark = None
    return {**document, ORIGIN: mark}


def is_own(document: Mapping[str, Any]) -> bool:
    """Whether this user recorded, on this machine, the command that ``document`` names."""
    found = document.get(ORIGIN)
    if not isinstance(found, str) or not found.isascii():
        return False
    keys = [key for folder in _folders() if (key := _read_key(folder)) is not None]
    return any(hmac.compare_digest(found, _mark(document, key)) for key in keys)


def _mark(document: Mapping[str, Any], key: bytes) -> str:
    # As it reads back from the file: redacted, with lists for tuples.
    plain = json.loads(as_json({name: document.get(name) for name in SIGNED}))
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hmac.new(key, text.encode("ascii"), hashlib.sha256).hexdigest()


def _own_key() -> bytes | None:
    """The key of the first place that has one, or takes one."""
    folders = list(_folders())
    for folder in folders:
        if (key := _read_key(folder)) is not None:
            return key
    for folder in folders:
        with unless_it_fails(OSError):
            _make_key(folder)
        if (key := _read_key(folder)) is not None:
            return key
    return None


def _folders() -> Iterator[Path]:
    """The user's state folder, by the XDG rules; a folder of the user's own for temporary files that outlive a boot."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        yield Path(state, "steadytrain")
    with contextlib.suppress(RuntimeError):
        yield Path.home() / ".local" / "state" / "steadytrain"
    if hasattr(os, "getuid"):
        yield TEMPORARY / f"steadytrain-{os.getuid()}"


def _read_key(folder: Path) -> bytes | None:
    """The key in ``folder``, if nobody but this user can have put it there or read it."""
    try:
        if _is_writable_by_others(folder.stat()):
            return None
        handle = os.open(folder / KEY_FILE, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or _is_writable_by_others(facts) or facts.st_mode & 0o077:
                return None
            key = file.read(KEY_BYTES + 1)
    except own(OSError):
        return None
    return key if len(key) == KEY_BYTES else None


def _is_writable_by_others(facts: os.stat_result) -> bool:
    return hasattr(os, "getuid") and (facts.st_uid != os.getuid() or bool(facts.st_mode & 0o022))


def _make_key(folder: Path) -> None:
    """Several processes may begin at once: the first link counts."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = folder / f".{KEY_FILE}.{os.getpid()}.{secrets.token_hex(4)}"
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
        with contextlib.suppress(FileExistsError):
            os.link(part, folder / KEY_FILE)
    finally:
        part.unlink(missing_ok=True)

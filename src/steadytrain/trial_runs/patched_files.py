"""The files of a run that a patch may change: the script and what it imports of its own; reading and writing them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.diagnosis.fix_order import Hints
from steadytrain.diagnosis.guarded_operations import guarded
from steadytrain.diagnosis.patches.edits import CannotPatchError, Source
from steadytrain.diagnosis.patches.rate_jumps import place_of
from steadytrain.diagnosis.patches.table import patches_for
from steadytrain.diagnosis.patches.wound import Patch, jump_before, wound_of
from steadytrain.experiments.case import Case
from steadytrain.replay.moved_files import Moved
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.numbered_files import sync
from steadytrain.storage.run_folder import open_run


@dataclass(frozen=True)
class OwnFile:
    """A file as it was when the run used it. ``path`` is where it is now, ``recorded`` where it was."""

    path: Path
    recorded: str
    text: str
    is_script: bool


def own_files(case: Case, moved: str) -> tuple[list[OwnFile], str]:
    """The script first, then the modules that the bundle names; and why the script cannot be patched ("" if it can).

    A run without a bundle names no modules. One that was started as a module has no script.
    """
    script = case.environment.get("script")
    sources = case.environment.get("sources") or {}
    found, refusal = [], ""
    for recorded in [*([script] if script else []), *(path for path in sorted(sources) if path != script)]:
        own, why = read(str(recorded), sources.get(recorded), moved, is_script=recorded == script)
        found += [own] if own is not None else []
        refusal = why if recorded == script else refusal
    if refusal:
        return [], refusal
    return found, "" if found else "the run was started as a module or from a notebook: there is no script to patch"


def read(recorded: str, digest: str | None, moved: str, *, is_script: bool) -> tuple[OwnFile | None, str]:
    """A file at its present place, and why it cannot be patched ("" if it can)."""
    path = Path(Moved.parse(moved).path(recorded))
    try:
        raw = path.read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{path}: the script cannot be read ({error})"
    if digest is not None and hashlib.sha256(raw).hexdigest() != digest:
        return None, f"{path}: the script changed since the run, so its lines are not those that failed"
    return OwnFile(path, recorded, text, is_script), ""


def patches_of(
    cause: str, files: Sequence[OwnFile], case: Case, norm: float | None
) -> tuple[list[tuple[OwnFile, Patch]], str]:
    """The patches of a cause in the script, else in the only module where one can be made; and why there are none."""
    located = case.finding.located if case.finding else None
    rows, optimizer, jump = _bad_rows(case), _optimizer_of(case), jump_before(case.window, case.onset)
    why, in_modules = "", []
    for own in files:
        wound = replace(
            wound_of(own.recorded, cause, located, norm, case.facts),
            rows=rows,
            symptoms=frozenset(one.name for one in case.symptoms),
            named=_named_lines(case, own.recorded),
            optimizer=optimizer,
            jump=jump,
        )
        made, refused = patches_for(cause, own.text, wound, name=_name_in_diff(own.path, case))
        if own.is_script and made:
            return [(own, one) for one in made], ""
        if made:
            in_modules.append([(own, one) for one in made])
        elif not why or wound.line is not None:
            why = refused
    if len(in_modules) == 1:
        return in_modules[0], ""
    names = ", ".join(patches[0][0].path.name for patches in in_modules)
    return [], f"{len(in_modules)} modules could be changed ({names})" if in_modules else why


def _name_in_diff(path: Path, case: Case) -> str:
    """As ``patch -p1`` takes it in the folder that the script ran in."""
    folder = case.environment.get("cwd")
    inside = isinstance(folder, str) and path.is_absolute() and path.is_relative_to(folder)
    return path.relative_to(str(folder)).as_posix() if inside else path.name


def hints(case: Case, moved: str) -> Hints:
    """What the code of fixes names in this script."""
    found = case.finding.located if case.finding else None
    return Hints(kept_rate(case, moved), guarded(found), ignored_label(case))


def ignored_label(case: Case) -> int | None:
    """The ``ignore_index`` of the script's losses, if all of them have the same one."""
    losses = case.facts.get("loss_functions")
    known = {one.get("ignore_index") for one in losses if isinstance(one, dict)} if isinstance(losses, list) else set()
    known.discard(None)
    (label,) = known if len(known) == 1 else (None,)
    return label if isinstance(label, int) else None


def kept_rate(case: Case, moved: str) -> str:
    """What a learning rate that jumped should stay at, and the line that set it if that can be told; "" if none did."""
    jump = jump_before(case.window, case.onset)
    if jump is None:
        return ""
    places = []
    for own in own_files(case, moved)[0]:
        try:
            places.append(f"{own.path.name}:{place_of(Source(own.text, _optimizer_of(case)), jump)[0].lineno}")
        except CannotPatchError:
            continue
    where = f" at {places[0]}" if len(places) == 1 else ""
    return f"keep the rate at {jump.before:.6g}{where}: it became {jump.after:.6g} in step {jump.step}"


def _named_lines(case: Case, file: str) -> dict[str, int]:
    """The lines of ``file`` that symptoms name, by the symptom."""
    return {one.name: one.at.line for one in case.symptoms if one.at is not None and one.at.file == file}


def _optimizer_of(case: Case) -> str:
    """The script's variable of the optimizer that the case is about; "" if the run did not record it."""
    try:
        run = open_run(case.path.parents[1] if is_bundle(case.path) else case.path)
    except (UsageError, IndexError):
        return ""
    names, stream = run.facts.get("stream_names"), case.symptom.stream if case.symptom is not None else case.stream
    return str(names.get(stream, "")) if isinstance(names, dict) else ""


def _bad_rows(case: Case) -> tuple[int, ...]:
    """The places in the data set of the incident's samples that hold NaN or Inf."""
    if not is_bundle(case.path):
        return ()
    samples = open_bundle(case.path).incident.samples
    return tuple(sorted({one.indices[row] for one in samples for row in one.nonfinite_rows}))


def write(text: str, case: Case, moved: str, file: str = "") -> Path | None:
    """Writes the patched text over ``file`` (a recorded or present path; "" for the script), atomically.

    Returns:
        The copy of the old file, None if git holds it.

    Raises:
        UsageError: the file changed since the run, or cannot be written.
    """
    files, refusal = own_files(case, moved)
    own = next((one for one in files if (one.is_script if not file else file in (str(one.path), one.recorded))), None)
    if own is None:
        raise UsageError(f"--write: {refusal or f'{file} changed since the run, or is no file of it'}")
    path = own.path.resolve()  # a link to the script stays one
    copy = None if _in_git(path) else path.with_name(f"{path.name}.orig")
    try:
        old = path.read_bytes()
        if copy is not None and copy.exists() and copy.read_bytes() != old:
            raise UsageError(f"--write: {copy} is there from an earlier patch; move it away first")
        with _beside(path, text.encode(), ".new") as written:
            if copy is not None:
                with _beside(path, old, ".old") as kept:
                    shutil.copystat(path, kept)
                    os.replace(kept, copy)
            shutil.copymode(path, written)
            os.replace(written, path)
        sync(path.parent)
    except OSError as error:
        raise UsageError(f"--write: {path} cannot be written ({error.strerror or error})") from None
    return copy


@contextmanager
def _beside(path: Path, content: bytes, suffix: str) -> Iterator[Path]:
    """A hidden file, flushed to disk, gone at the end unless it was renamed. It replaces one of a killed try."""
    made = path.with_name(f".{path.name}{suffix}")
    try:
        made.unlink(missing_ok=True)
        with made.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        yield made
    finally:
        made.unlink(missing_ok=True)


def _in_git(path: Path) -> bool:
    """Whether git holds the file as it is now."""
    for command in (["ls-files", "--error-unmatch"], ["diff", "--quiet", "HEAD", "--"]):
        try:
            done = subprocess.run(["git", *command, path.name], cwd=path.parent, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return False
        if done.returncode != 0:
            return False
    return True

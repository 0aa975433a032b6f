"""Finds the commit that introduced a symptom: ``git bisect run`` replays the incident at each commit.

The bisection uses a temporary second work tree (``git worktree``), which is removed at the end in every case. The
repository's own work tree, index and branches stay untouched. ``git bisect run`` calls
``python -m steadytrain.replay.bisection`` at each commit.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.replay.child_processes import process_group
from steadytrain.replay.verdict import CANNOT_TELL_STATUS, CLEAN_STATUS, SYMPTOM_STATUS

GIT_WAIT_S = 120.0
GRACE_S = 10.0
"""Time for an interrupted replay to remove its temporary folder."""

LINKS_MAX = 500
"""At most this many untracked files and folders (data, outputs) are linked into the work tree."""

ABORT_STATUS = 128
"""With a status from 128 on, ``git bisect run`` aborts instead of marking the commit as bad."""

INTERRUPTED_STATUS = 130


@dataclass(frozen=True)
class Bisected:
    """``first_bad`` is the commit. If some commits could not be tested, ``candidates`` lists the possible first bad
    ones."""

    first_bad: str | None
    candidates: tuple[str, ...]
    subject: str
    tested: int


def repository_of(environment: Mapping[str, Any]) -> Path:
    """The root of the git repository that contains the recorded script, or the folder in which it ran.

    Raises:
        UsageError: the folder is gone, or is in no repository.
    """
    script, folder = environment.get("script"), environment.get("cwd")
    place = Path(script).parent if script else Path(folder or ".")
    if not place.is_dir():
        raise UsageError(f"{place}: the folder of the recorded script is gone; bisect needs its git repository")
    done = git(place, "rev-parse", "--show-toplevel")
    if done.returncode != 0:
        raise UsageError(f"{place}: not in a git repository; bisect needs its commits")
    return Path(done.stdout.strip())


def commit_of(repository: Path, revision: str) -> str:
    """The full hash of the commit that ``revision`` names.

    Raises:
        UsageError: no such commit exists.
    """
    if revision.startswith("-"):
        raise UsageError(f"{revision!r}: a revision cannot begin with a dash")
    done = git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if done.returncode != 0:
        raise UsageError(f"{revision}: no such commit in {repository}")
    return done.stdout.strip()


def bisect(repository: Path, *, good: str, bad: str, command: Sequence[str]) -> Bisected:
    """Bisects from the commit ``good`` to the commit ``bad``. ``command`` gets the work tree's path as its last
    argument.

    Both ends are tested first: the symptom must be absent at ``good`` and present at ``bad``.

    Raises:
        UsageError: one end fails its test, or git fails.
    """
    if git(repository, "merge-base", "--is-ancestor", good, bad).returncode != 0:
        raise UsageError(f"{good[:12]} is no ancestor of {bad[:12]}: there are no commits to search between them")
    with work_tree(repository, bad) as tree:
        run = [*command, str(tree)]
        _check_end(tree, bad, run, SYMPTOM_STATUS, "the symptom does not occur at the bad commit")
        _check_end(tree, good, run, CLEAN_STATUS, "the symptom also occurs at the good commit")
        _must(git(tree, "checkout", "--quiet", "--detach", bad), "checking out the bad commit")
        _must(git(tree, "bisect", "start", bad, good), "starting the bisection")
        try:
            done = _run(["git", "-C", str(tree), "bisect", "run", *run], folder=tree, environment=_git_environment())
            log = git(tree, "bisect", "log").stdout
            return _outcome(tree, done, log)
        finally:
            git(tree, "bisect", "reset")


@contextmanager
def work_tree(repository: Path, commit: str) -> Iterator[Path]:
    """A temporary work tree at ``commit``, removed at the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="steadytrain-bisect-"))
    tree = folder / (repository.name or "tree")
    try:
        _must(git(repository, "worktree", "add", "--detach", "--quiet", str(tree), commit), "making a work tree")
        yield tree
    finally:
        git(repository, "worktree", "remove", "--force", str(tree))
        shutil.rmtree(folder, ignore_errors=True)
        git(repository, "worktree", "prune")


@contextmanager
def lent(repository: Path, tree: Path) -> Iterator[None]:
    """Links untracked files of ``repository`` into ``tree`` during the block, so that a script finds its data."""
    listed = git(repository, "ls-files", "--others", "--directory", "--no-empty-directory", "-z").stdout
    links = []
    try:
        for name in [name.rstrip("/") for name in listed.split("\0") if name][:LINKS_MAX]:
            link = tree / name
            if link.exists() or link.is_symlink() or not link.parent.is_dir() or name.endswith("__pycache__"):
                continue
            link.symlink_to(repository / name)
            links.append(link)
        yield
    finally:
        for link in links:
            link.unlink(missing_ok=True)


def git(folder: Path, *arguments: str, wait_s: float = GIT_WAIT_S) -> subprocess.CompletedProcess[str]:
    """Runs git in ``folder``, independent of the repository of the calling process.

    Raises:
        UsageError: git is not installed, or does not finish within ``wait_s`` seconds.
    """
    try:
        return subprocess.run(
            ["git", "-C", str(folder), *arguments],
            env=_git_environment(),
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=wait_s,
            check=False,
        )
    except FileNotFoundError:
        raise UsageError("bisect needs git, which is not on the PATH") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} took more than {wait_s:.0f} s in {folder}") from None


def _git_environment() -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")}, "LC_ALL": "C"}


def _run(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a command that launches replays. If this process is interrupted, the replays get time to clean up."""
    pipe = subprocess.PIPE
    with process_group(
        command, folder=folder, environment=environment, stdout=pipe, stderr=pipe, grace_s=GRACE_S
    ) as child:
        out, err = child.communicate()
    return subprocess.CompletedProcess(command, child.returncode, out, err)


def _check_end(tree: Path, commit: str, run: Sequence[str], wanted: int, wrong: str) -> None:
    _must(git(tree, "checkout", "--quiet", "--detach", commit), f"checking out {commit[:12]}")
    done = _run(run, folder=tree)
    if done.returncode == wanted:
        return
    said = " | ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-2:])
    if done.returncode in (CLEAN_STATUS, SYMPTOM_STATUS):
        raise UsageError(f"{wrong} ({commit[:12]}): there is nothing to search between the two")
    raise UsageError(f"{commit[:12]}: cannot tell whether the symptom occurs there: {said}")


def _outcome(tree: Path, done: subprocess.CompletedProcess[str], log: str) -> Bisected:
    tested = sum(line.startswith(("git bisect good", "git bisect bad", "git bisect skip")) for line in log.splitlines())
    found = [
        line.split("[", 1)[1].split("]")[0] for line in log.splitlines() if line.startswith("# first bad commit: [")
    ]
    if found:
        subject = git(tree, "log", "-1", "--format=%s", found[-1]).stdout.strip()
        return Bisected(found[-1], (), subject, tested)
    marked = "# possible first bad commit: ["
    possible = tuple(line.split("[", 1)[1].split("]")[0] for line in log.splitlines() if line.startswith(marked))
    if possible:
        return Bisected(None, possible, "", tested)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    raise UsageError(f"git bisect did not finish: {said[-1] if said else 'it printed nothing'}")


def _must(done: subprocess.CompletedProcess[str], doing: str) -> None:
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise UsageError(f"{doing}: git says: {said[-1] if said else done.returncode}")


def main(repository: str, wait_s: str, incident: str, tree: str) -> int:
    """Replays the incident with the script of ``tree``. Returns the exit status that ``git bisect run`` expects."""
    with lent(Path(repository), Path(tree)):
        command = [sys.executable, "-m", "steadytrain", "replay", incident, "--tree", f"{repository}={tree}"]
        # Whoever started the bisection has agreed to run the script (cli/_consent.py).
        done = subprocess.run(
            [*command, "--wait-s", wait_s, "--once", "--trust"], stdin=subprocess.DEVNULL, check=False
        )
    if done.returncode in (CLEAN_STATUS, SYMPTOM_STATUS):
        return done.returncode
    # A commit that cannot be replayed is skipped for any reason; an interruption aborts the bisection.
    return ABORT_STATUS + 1 if done.returncode < 0 or done.returncode == INTERRUPTED_STATUS else CANNOT_TELL_STATUS


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

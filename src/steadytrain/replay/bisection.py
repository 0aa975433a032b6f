"""Find the commit that brought a symptom: ``git bisect run`` with a replay at each commit, in a work tree of its own.

The repository's own work tree, index and branches are not touched: a second work tree (``git worktree``) is made in a
temporary folder, and taken away at the end, whatever happens. Run as ``python -m steadytrain.replay.bisection`` it is
what ``git bisect run`` calls at each commit.
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
"""For a replay that is ended from outside to take its temporary folder away."""

LINKS_MAX = 500
"""Files and folders that git does not track (data, outputs) and that are lent to the work tree as links."""

ABORT_STATUS = 128
"""From 128 on ``git bisect run`` gives up instead of taking the commit for a bad one."""

INTERRUPTED_STATUS = 130


@dataclass(frozen=True)
class Bisected:
    """``first_bad`` is the commit; where commits could not be told, ``candidates`` are those it may be."""

    first_bad: str | None
    candidates: tuple[str, ...]
    subject: str
    tested: int


def repository_of(environment: Mapping[str, Any]) -> Path:
    """The work tree that the recorded script (or the folder it ran in) belongs to.

    Raises:
        UsageError: it is gone, or in no repository.
    """
    script, folder = environment.get("script"), environment.get("cwd")
    place = Path(script).parent if script else Path(folder or ".")
    if not place.is_dir():
        raise UsageError(f"{place}: the folder of the recorded script is gone; bisect needs its git repository")
    done = git(place, "rev-parse", "--show-toplevel")
    if done.returncode != 0:
        raise UsageError(f"{place}: not in a git repository; bisect goes through its commits")
    return Path(done.stdout.strip())


def commit_of(repository: Path, revision: str) -> str:
    """The commit that ``revision`` names.

    Raises:
        UsageError: there is none of that name.
    """
    if revision.startswith("-"):
        raise UsageError(f"{revision!r}: no revision begins with a dash")
    done = git(repository, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if done.returncode != 0:
        raise UsageError(f"{revision}: no such commit in {repository}")
    return done.stdout.strip()


def bisect(repository: Path, *, good: str, bad: str, command: Sequence[str]) -> Bisected:
    """Bisect from ``good`` to ``bad`` (commits); ``command`` is run with the work tree's path as its last argument.

    Both ends are tested first: a symptom that comes at the good commit, or does not at the bad one, has no first commit
    between them.

    Raises:
        UsageError: an end is not what it was said to be, or git cannot do it.
    """
    if git(repository, "merge-base", "--is-ancestor", good, bad).returncode != 0:
        raise UsageError(f"{good[:12]} is no ancestor of {bad[:12]}: there is no way from good to bad to search")
    with work_tree(repository, bad) as tree:
        run = [*command, str(tree)]
        _check_end(tree, bad, run, SYMPTOM_STATUS, "the symptom does not come at the bad commit")
        _check_end(tree, good, run, CLEAN_STATUS, "the symptom comes at the good commit, too")
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
    """A work tree of its own at ``commit``, gone afterwards."""
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
    """What git does not track, as links in ``tree``, so that a script finds its data; gone afterwards."""
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
    """Git, whatever repository the calling process stands in.

    Raises:
        UsageError: git is not there, or does not answer.
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
        raise UsageError("bisect needs git, and there is none on the path") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} took more than {wait_s:.0f} s in {folder}") from None


def _git_environment() -> dict[str, str]:
    return {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")}, "LC_ALL": "C"}


def _run(
    command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """What launches replays; where this process is ended they are asked to tidy up and end as well."""
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
    raise UsageError(f"git bisect did not finish: {said[-1] if said else 'it said nothing'}")


def _must(done: subprocess.CompletedProcess[str], doing: str) -> None:
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()
        raise UsageError(f"{doing}: git says: {said[-1] if said else done.returncode}")


def main(repository: str, wait_s: str, incident: str, tree: str) -> int:
    """One commit: replay the incident with the script of ``tree``; the status is what ``git bisect run`` wants."""
    with lent(Path(repository), Path(tree)):
        command = [sys.executable, "-m", "steadytrain", "replay", incident, "--tree", f"{repository}={tree}"]
        done = subprocess.run([*command, "--wait-s", wait_s, "--once"], stdin=subprocess.DEVNULL, check=False)
    if done.returncode in (CLEAN_STATUS, SYMPTOM_STATUS):
        return done.returncode
    # A commit that cannot be replayed is passed over, whatever the reason; an interruption ends it all.
    return ABORT_STATUS + 1 if done.returncode < 0 or done.returncode == INTERRUPTED_STATUS else CANNOT_TELL_STATUS


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

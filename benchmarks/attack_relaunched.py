"""Attack: scripts that save over their own files, launched again by our commands; no file of theirs may change.

Each script runs once under watch in a fresh folder until its incident. Then every file of the folder is hashed, our
commands launch the script again (one of them is killed at a random moment), and every file is hashed again. The table
says how many scripts were tried and how many kept every file.

    python benchmarks/attack_relaunched.py [--programs FOLDER] [--quick | --all] [--only WORD] [--without-kernel]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).parent / "attack_programs" / "relaunched"
RUNS = "steadytrain-runs"
COMMANDS = {
    "replay": ("replay", "--once"),
    "locate": ("locate",),
    "onset": ("onset",),
    "diagnose": ("diagnose", "--budget", "20"),
}
COMMANDS_BY_DEFAULT = 2
QUICK_S = 35.0
"""``--quick`` starts no further script after this long, and ends within a minute; the seed says which come first."""

COMMAND_S_MAX = 120.0
RUN_S_MAX = 60.0
KILLED_AFTER_S = (0.5, 6.0)
SETTLE_S = 0.5
"""Between two looks at the files: what still runs after a command has this long to do harm."""

SETTLE_S_MAX = 20.0
SKIPPED = "SKIP"
"""Begins the line of a script that needs a library that is not installed."""

CACHES = ("__pycache__", ".triton", ".nv", "torchinductor")
"""Caches of compilers, which a launched script writes as usual."""


@dataclass
class Attack:
    """One script: what was tried on it, and what changed. ``note`` says why nothing was tried."""

    name: str
    statuses: dict[str, int] = field(default_factory=dict)
    changed: dict[str, list[str]] = field(default_factory=dict)
    note: str = ""

    @property
    def survived(self) -> bool:
        return not self.changed and not self.note


def attack(script: Path, *, commands: int, chance: random.Random, environment: dict[str, str]) -> Attack:
    """Runs ``script`` to its incident in a fresh folder, and so many of our commands on it."""
    result = Attack(script.stem)
    with tempfile.TemporaryDirectory(prefix="steadytrain-attack-", ignore_cleanup_errors=True) as place:
        folder = Path(place) / "work"
        home = Path(place) / "home"
        for made in (folder, home):
            made.mkdir()
        shutil.copy(script, folder / "train.py")
        variables = {**environment, "HOME": str(home)}
        words = ["run", "--name", "first", "train.py"]
        result.statuses["run"] = _status(words, folder, variables, RUN_S_MAX)
        if chance.random() < 0.5:
            words = ["run", "--name", "second", "--continues", f"{RUNS}/first", "train.py"]
            result.statuses["continued"] = _status(words, folder, variables, RUN_S_MAX)
        if not list((folder / RUNS).glob("*/incidents/*/manifest.json")):
            result.note = _why_no_incident(_log_of(folder).read_text(errors="replace"), result.statuses["run"])
            return result
        names = chance.sample(list(COMMANDS), commands)
        before = settled(Path(place))
        for name in names:
            result.statuses[name] = _status(COMMANDS[name], folder, variables, COMMAND_S_MAX)
            before = _noted(result, name, before, Path(place))
        name, after_s = chance.choice(list(COMMANDS)), chance.uniform(*KILLED_AFTER_S)
        _killed(COMMANDS[name], folder, variables, after_s)
        _noted(result, f"{name} killed after {after_s:.1f} s", before, Path(place))
    return result


def _why_no_incident(log: str, status: int) -> str:
    skipped = next((line for line in log.splitlines() if line.startswith(SKIPPED)), "")
    return skipped.lower() or f"no incident: nothing to launch again (status {status})"


def _log_of(folder: Path) -> Path:
    """Where the output of all commands on ``folder`` goes: beside the files that are compared."""
    return folder.parent.parent / f"{folder.parent.name}.log"


def _noted(result: Attack, name: str, before: dict[str, str], place: Path) -> dict[str, str]:
    now = settled(place)
    changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
    if changed:
        result.changed[name] = changed
    return now


def settled(place: Path) -> dict[str, str]:
    """The inventory once it no longer changes: the run itself may have left a process that writes for a while."""
    until, before = time.monotonic() + SETTLE_S_MAX, inventory(place)
    while time.monotonic() < until:
        time.sleep(SETTLE_S)
        now = inventory(place)
        if now == before:
            break
        before = now
    return before


def inventory(place: Path) -> dict[str, str]:
    """Every file below ``place`` outside the run folders: a digest of its bytes, mode and modification time."""
    found: dict[str, str] = {}
    for at, folders, names in os.walk(place):
        folders[:] = [name for name in folders if name != RUNS and not name.startswith(CACHES)]
        for name in [*names, *folders]:
            path = Path(at) / name
            state = path.lstat()
            parts = [oct(state.st_mode)]
            if path.is_symlink():
                parts.append(os.readlink(path))
            elif path.is_file():
                parts += [str(state.st_mtime_ns), hashlib.sha256(path.read_bytes()).hexdigest()]
            found[str(path.relative_to(place))] = " ".join(parts)
    return found


def _status(words: tuple[str, ...] | list[str], folder: Path, variables: dict[str, str], wait_s: float) -> int:
    child = _started(words, folder, variables)
    try:
        return child.wait(wait_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)
        time.sleep(SETTLE_S)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return -1


def _killed(words: tuple[str, ...], folder: Path, variables: dict[str, str], after_s: float) -> None:
    child = _started(words, folder, variables)
    try:
        child.wait(after_s)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _started(words: tuple[str, ...] | list[str], folder: Path, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    with _log_of(folder).open("ab") as log:
        log.write(f"--- {' '.join(words)}\n".encode())
        log.flush()
        return subprocess.Popen(
            [sys.executable, "-m", "steadytrain", *words],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def table(attacks: list[Attack]) -> str:
    """The table for the docs, and a line for each file that changed."""
    lines = ["| script | tried | survived |", "|---|---|---|"]
    for one in attacks:
        tried = ", ".join(f"{name} ({status})" for name, status in one.statuses.items())
        lines.append(f"| {one.name} | {tried} | {'yes' if one.survived else one.note or '**no**'} |")
    tried = [one for one in attacks if not one.note]
    lines.append(f"| all | {len(tried)} scripts | {sum(one.survived for one in tried)} |")
    for one in attacks:
        lines += [f"FAILED {one.name}: {name} changed {', '.join(paths)}" for name, paths in one.changed.items()]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=Path, default=SCRIPTS, metavar="FOLDER", help="the scripts to attack with")
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--quick", action="store_true", help="a minute, one command a script, in an order by the seed")
    extent.add_argument("--all", action="store_true", help="all four commands a script; two by default")
    parser.add_argument("--only", default="", help="scripts whose name contains this")
    parser.add_argument("--without-kernel", action="store_true", help="as on a kernel without Landlock")
    parser.add_argument("--seconds", type=float, help="begin no more scripts after that time, in an order by the seed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if options.without_kernel:
        environment["STEADYTRAIN_LANDLOCK"] = "off"
    scripts = [path for path in sorted(options.programs.glob("*.py")) if options.only in path.stem]
    scripts = [path for path in scripts if not path.stem.startswith("_")]
    if not scripts:
        print(f"{options.programs}: no scripts to attack with", file=sys.stderr)
        return 2
    if options.quick or options.seconds:
        random.Random(options.seed).shuffle(scripts)
    commands = 1 if options.quick else len(COMMANDS) if options.all else COMMANDS_BY_DEFAULT
    attacks: list[Attack] = []
    until = time.monotonic() + (options.seconds or (QUICK_S if options.quick else float("inf")))
    for script in scripts:
        if attacks and time.monotonic() > until:
            break
        chance = random.Random(f"{options.seed} {script.stem}")
        attacks.append(attack(script, commands=commands, chance=chance, environment=environment))
        print(table(attacks[-1:]).splitlines()[2], file=sys.stderr, flush=True)
    print(table(attacks))
    if options.json:
        tried = [one for one in attacks if not one.note]
        rows = [{"name": one.name, "survived": one.survived, "note": str(one.changed or "")} for one in tried]
        options.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return 0 if all(one.survived or one.note for one in attacks) and any(one.survived for one in attacks) else 1


if __name__ == "__main__":
    sys.exit(main())

"""Attack: many ways to train, each run bare and watched; the script must not notice.

Each program prints a digest of its weights, states and losses, bit for bit. A way survives if exit status, standard
output and the files that the program leaves are the same under ``steadytrain run``, and steadytrain reports no failure
of its own. A program that differs between two bare runs proves nothing; it is named.

A program is a file, or a package that runs as a module. Comments `# Interpreter:`, `# Arguments:` and `# Input:` give
it options of the interpreter, arguments, and a line on standard input.

    python benchmarks/attack_ways.py [FOLDER] [--only WORD...] [--jobs N] [--quick] [--warm] [--json FILE]

With ``--warm`` both runs are forks of a process that has imported torch, which takes a third of the time; a way that
fails so is tried again in fresh interpreters, and that counts.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import hashlib
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

PROGRAMS = Path(__file__).parent / "attack_programs" / "ways"
TESTS = Path(__file__).resolve().parents[1] / "tests"
QUICK = ("dispatch_mode", "jit_trace_midway", "sweep_nothing_alive")
RUNS = "steadytrain-runs"
PROGRAM_S_MAX = 240.0  # an inductor build takes 90 s on a busy machine
OWN_FAILURE = "training goes on without it"
DIFFERENCE_LINES_MAX = 6


@dataclass(frozen=True)
class End:
    """How a program ended: status (None: it was killed for time), what it printed, and a hash of each file it left."""

    status: int | None
    out: str
    err: str
    files: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Way:
    name: str
    survived: bool
    note: str = ""


def given(program: Path, word: str) -> str:
    """What the comment ``# word: ...`` of ``program`` says; empty if it has none."""
    text = (program / "__main__.py" if program.is_dir() else program).read_text(encoding="utf-8")
    found = re.search(rf"^# {word}: (.+)$", text, re.MULTILINE)
    return found[1] if found else ""


def run(
    program: Path,
    launcher: Sequence[str],
    look: Callable[[Path], None] = lambda folder: None,
    *,
    python: str = sys.executable,
    s_max: float = PROGRAM_S_MAX,
) -> End:
    """Run a copy of ``program`` in a fresh folder; ``look`` sees that folder before it is removed."""
    with tempfile.TemporaryDirectory(prefix="way-") as folder:
        script = Path(folder) / program.name
        if program.is_dir():
            shutil.copytree(program, script)
        else:
            shutil.copyfile(program, script)
        target = ["-m", script.name] if program.is_dir() else [script.name]
        options, arguments = given(program, "Interpreter").split(), given(program, "Arguments").split()
        line = [python, *options, *launcher, *target, *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": folder}
        with (
            tempfile.TemporaryFile("w+") as into,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            into.write(given(program, "Input"))
            into.seek(0)
            started = subprocess.Popen(line, cwd=folder, env=environment, stdin=into, stdout=out, stderr=err, text=True)
            try:
                status: int | None = started.wait(s_max)
            except subprocess.TimeoutExpired:
                started.kill()
                started.wait()
                status = None
            out.seek(0)
            err.seek(0)
            end = End(status, out.read().replace(folder, "."), err.read(), files_in(Path(folder)))
            look(Path(folder))
            return end


def files_in(folder: Path) -> dict[str, str]:
    """Path and SHA-256 of each file; a link is named by what it says."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        # The cache of the compiler has times in it.
        aside = name.parts[0] == RUNS or name.parts[0].startswith("torchinductor_")
        if aside or "__pycache__" in name.parts:
            continue
        if path.is_symlink():
            found[str(name)] = f"-> {os.readlink(path)}"
        elif path.is_file():
            found[str(name)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def attack(program: Path, *, warm: str = "", s_max: float = PROGRAM_S_MAX) -> Way:
    """Try ``program``: in interpreters ``warm``, if there are such, and in fresh ones if it does not survive those."""
    if warm and (way := _compared(program, functools.partial(run, python=warm, s_max=s_max))).survived:
        return way
    return _compared(program, functools.partial(run, s_max=s_max))


def _compared(program: Path, run: Callable[..., End]) -> Way:
    bare = run(program, ())
    watched = run(program, ("-m", "steadytrain", "run"))
    note = difference(bare, watched)
    if not note:
        failures = [line for line in watched.err.splitlines() if OWN_FAILURE in line]
        return Way(program.stem, not failures, failures[0] if failures else "")
    again = run(program, ())
    if difference(bare, again):
        return Way(program.stem, survived=False, note="differs between two bare runs: " + difference(bare, again))
    return Way(program.stem, survived=False, note=note)


def difference(one: End, other: End) -> str:
    """In words; empty if there is none."""
    if one.status != other.status:
        last = other.err.strip().splitlines()[-1:] or [""]
        return f"status {other.status} instead of {one.status}: {last[0][:200]}"
    if one.out != other.out:
        lines = difflib.unified_diff(one.out.splitlines(), other.out.splitlines(), lineterm="", n=0)
        kept = [line[:160] for line in lines if line[:3] not in ("---", "+++") and line[:2] != "@@"]
        return "output differs: " + " | ".join(kept[:DIFFERENCE_LINES_MAX])
    if one.files != other.files:
        names = {name for name in {*one.files, *other.files} if one.files.get(name) != other.files.get(name)}
        return f"files differ: {', '.join(sorted(names)[:DIFFERENCE_LINES_MAX])}"
    return ""


def _warm() -> str:
    sys.path.insert(0, str(TESTS))
    import warm

    return warm.python()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=PROGRAMS)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only programs with such a word in their name")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more programs after that time")
    parser.add_argument("--seed", type=int, help="try them in an order drawn with it")
    parser.add_argument("--quick", action="store_true", help="a handful of programs")
    parser.add_argument("--but", type=Path, nargs="*", default=[], metavar="FILE", help="not those of these results")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    parser.add_argument("--warm", action="store_true", help="in forks of a process that has imported torch")
    parser.add_argument("--program-s", type=float, default=PROGRAM_S_MAX, help="a slower program fails")
    options = parser.parse_args()
    found = [*options.folder.glob("*.py"), *(path.parent for path in options.folder.glob("*/__main__.py"))]
    programs = [path for path in sorted(found) if any(word in path.stem for word in options.only or [""])]
    if options.quick:
        programs = [path for path in programs if path.stem in QUICK]
    if not programs:
        parser.error(f"no program in {options.folder}")
    tried = {one["name"] for file in options.but for one in json.loads(file.read_text(encoding="utf-8"))}
    programs = [path for path in programs if path.stem not in tried]
    if options.seed is not None:
        random.Random(options.seed).shuffle(programs)
    warm = _warm() if options.warm else ""
    until = time.monotonic() + options.seconds

    def in_time(program: Path) -> Way | None:
        return attack(program, warm=warm, s_max=options.program_s) if time.monotonic() < until else None

    with ThreadPoolExecutor(options.jobs) as pool:
        ways = []
        for way in pool.map(in_time, programs):
            if way is None:
                continue
            ways.append(way)
            print(f"{'survived' if way.survived else 'FAILED  '} {way.name}  {way.note}", flush=True)
    survived = sum(way.survived for way in ways)
    failed = ", ".join(way.name for way in ways if not way.survived) or "none"
    print("\n| attack | tried | survived | failed |\n|---|---|---|---|")
    print(f"| ways to train | {len(ways)} | {survived} | {failed} |")
    if options.json:
        options.json.write_text(json.dumps([asdict(way) for way in ways], indent=1), encoding="utf-8")
    return 0 if survived == len(ways) else 1


if __name__ == "__main__":
    sys.exit(main())

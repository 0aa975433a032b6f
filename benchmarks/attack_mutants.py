"""Attack: damaged and hostile bundles, run folders, logs, data and settings against the commands that read them.

A mutant is a copy with one to three changes: bits, blocks and lines are changed, doubled or cut out, numbers become
huge, a file becomes sparse, a pipe, a folder or a link without an end. Half of the bundles get a new manifest, so that
their checksums hold. Each command runs in a fork of this process with a bound on memory and time. A mutant has survived
if the command answered, or refused in lines of its own with status 2: no traceback, no signal, no hang.

    python benchmarks/attack_mutants.py [--count 2000] [--seed 0] [--quick] [--keep FOLDER] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from attack_originals import VARIABLES, make_originals

from steadytrain.storage.bundle import MANIFEST, seal

MUTANTS, QUICK_MUTANTS = 2_000, 60
COMMAND_S_MAX = 30
"""Seconds of the processor; in those of a clock ``WAIT_S_MAX``, for one that waits for ever."""

WAIT_S_MAX = 300.0
MEMORY_BYTES_MAX = 2 << 30
"""Memory that a command may take beside what this process has when it forks."""

SPARSE_BYTES = 20 << 30
READ_BYTES_MAX = 1 << 26
"""A larger file has been made sparse; this process does not read it."""

TOLD_BYTES_MAX = 1 << 20
STATUSES = (0, 1, 2)
OWN_LINES = ("steadytrain: ", "next  ")
COMMANDS = {
    "bundle": (
        ("show", "{}"),
        ("show", "--json", "{}"),
        ("report", "{}", "-o", "{}.html"),
        ("bundle", "inspect", "{}"),
        ("bundle", "inspect", "--json", "{}"),
        ("bundle", "strip", "--no-data", "--no-weights", "{}", "-o", "{}.small"),
    ),
    "run": (
        ("show", "{}"),
        ("show", "--json", "{}"),
        ("runs", "--runs-dir", "{}/.."),
        ("query", "--seconds", "20", "{}", "SELECT * FROM steps, symptoms LIMIT 5"),
        ("analyze", "{}"),
        ("gate", "{}"),
        ("gate", "--json", "--junit", "{}.xml", "--sarif", "{}.sarif", "--markdown", "{}.md", "{}"),
        ("ledger", "{}"),
        ("checkpoints", "{}"),
        ("checklist", "{}"),
    ),
    "settings": (
        ("run", "--runs-dir", "{}/runs", "{}/train.py"),
        ("gate", "--policy", "{}/gate.toml", "{}/log.csv"),
        ("policy", "show", "{}/guard.toml"),
        ("runs", "--runs-dir", "{}/runs"),
    ),
    "log": (("analyze", "{}"), ("analyze", "--json", "{}")),
    "data": (("check-data", "{}"), ("check-data", "--json", "--fast", "{}")),
}


@dataclass(frozen=True)
class Result:
    """How one command ended on one mutant; ``why`` is empty if the mutant survived."""

    kind: str
    what: str
    why: str


def attack(count: int, *, seed: int, place: Path, keep: Path | None = None, seconds: float = math.inf) -> list[Result]:
    """Runs one command on each of ``count`` mutants, as many as ``seconds`` allow."""
    _import_all()
    originals = make_originals(place / "originals")
    results = []
    until = time.monotonic() + seconds
    for number in range(count):
        if time.monotonic() > until:
            break
        chance = random.Random(f"{seed}-{number}")
        kind = list(COMMANDS)[number % len(COMMANDS)]
        original = chance.choice(originals[kind])
        mutant = place / "mutants" / f"{number}" / original.name
        mutant.parent.mkdir(parents=True)
        shutil.copytree(original, mutant) if original.is_dir() else shutil.copy(original, mutant)
        changes = mutate(mutant, kind, chance)
        words = [word.replace("{}", str(mutant)) for word in chance.choice(COMMANDS[kind])]
        why, told = command_end(words, place / "told")
        results.append(Result(kind, f"{number}: {original.name}: {', '.join(changes)}: {words[0]}", why))
        if why:
            print(f"FAILED {results[-1].what}: {why}\n{told[-1_500:]}", flush=True)
            if keep is not None:
                shutil.copytree(mutant.parent, keep / f"{number}", symlinks=True, ignore=_no_sparse)
        shutil.rmtree(mutant.parent)
        if number % 100 == 99:
            print(f"{number + 1:,} tried, {sum(bool(one.why) for one in results):,} failed", flush=True)
    return results


def _no_sparse(folder: str, names: list[str]) -> list[str]:
    paths = [Path(folder) / name for name in names]
    return [path.name for path in paths if not path.is_dir() and path.lstat().st_size > READ_BYTES_MAX]


def table(results: list[Result]) -> str:
    """The table for the docs."""
    tried, failed = Counter(result.kind for result in results), Counter(r.kind for r in results if r.why)
    lines = ["| kind | tried | survived |", "|---|---|---|"]
    lines += [f"| {kind} | {tried[kind]:,} | {tried[kind] - failed[kind]:,} |" for kind in tried]
    return "\n".join([*lines, f"| all | {sum(tried.values()):,} | {sum(tried.values()) - sum(failed.values()):,} |"])


# One command.


def command_end(words: list[str], told_at: Path) -> tuple[str, str]:
    """What was wrong with the end of a command, empty if nothing was; and what it said on stderr."""
    sys.stdout.flush()
    child = os.fork()
    if not child:
        _be_command(words, told_at)
    deadline = time.monotonic() + WAIT_S_MAX
    while True:
        done, status, used = os.wait4(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"no end within {WAIT_S_MAX:.0f} s", ""
        time.sleep(0.002)
    with told_at.open("rb") as file:
        told = file.read(TOLD_BYTES_MAX).decode("utf-8", "replace")
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name} ({used.ru_utime + used.ru_stime:.0f} s)", told
    if used.ru_maxrss * 1024 > resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + MEMORY_BYTES_MAX:
        return f"{used.ru_maxrss >> 10:,} MiB of memory", told
    return _judged(os.WEXITSTATUS(status), told), told


def _judged(status: int, told: str) -> str:
    if status not in STATUSES or "Traceback" in told:
        return f"status {status}"
    strange = [line for line in told.splitlines() if line.strip() and not line.startswith(OWN_LINES)]
    if strange:
        return f"a line that is not ours: {strange[0][:120]}"
    if status == 2 and not told:
        return "status 2 without a word"
    return "\\x1b in what was said" if "\x1b" in told else ""


def _be_command(words: list[str], told_at: Path) -> None:
    """In the fork: runs the command line to its end. Never returns."""
    status = 99
    try:
        for name, number in (("/dev/null", 1), (str(told_at), 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 2 * MEMORY_BYTES_MAX,) * 2)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (COMMAND_S_MAX, COMMAND_S_MAX))
        sys.argv = ["steadytrain", *words]
        _enter(Path(words[-1]).parent)
        from steadytrain.cli.main import entry

        entry()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 98
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _enter(folder: Path) -> None:
    """Goes into a folder of settings, with its variables; others have none."""
    if not (folder / VARIABLES).is_file():
        return
    os.chdir(folder)
    with (folder / VARIABLES).open("rb") as file:
        lines = file.read(TOLD_BYTES_MAX).splitlines()
    for line in lines:
        name, _, value = line.partition(b"=")
        if name.startswith(b"STEADYTRAIN_") and b"\0" not in line:
            os.environb[name] = value


def _import_all() -> None:
    """Imports what the commands import, once for all forks; nothing that starts a thread."""
    import importlib

    for name in ("duckdb", "pyarrow.parquet", "rich.console", "jinja2"):
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    importlib.import_module("steadytrain.report.html")
    for name in ("show", "report", "runs", "query", "analyze", "check_data", "gate", "ledger", "checkpoints", "run"):
        importlib.import_module(f"steadytrain.cli.{name}")


# Mutants.


def mutate(mutant: Path, kind: str, chance: random.Random) -> list[str]:
    """Changes one to three files of ``mutant``; what was done."""
    done = []
    for _ in range(chance.choice((1, 1, 2, 3))):
        files = [mutant] if not mutant.is_dir() else sorted(mutant.rglob("*"))
        files = [file for file in files if file.is_file() and file.stat().st_size < READ_BYTES_MAX]
        files = [file for file in files if file.suffix != ".py"]
        if not files:
            break
        file = chance.choice(files)
        change = chance.choices(CHANGES, weights=[6] * (len(CHANGES) - 4) + [1] * 4)[0]
        change(file, chance)
        done.append(f"{change.__name__} {file.name if file != mutant else ''}".strip())
    if kind == "bundle" and chance.random() < 0.5 and all(p.stat().st_size < READ_BYTES_MAX for p in mutant.glob("*")):
        try:
            (mutant / MANIFEST).unlink(missing_ok=True)
            seal(mutant)
            done.append("sealed")
        except (OSError, ValueError):
            done.append("not sealed")
    return done


def _rewritten(
    change: Callable[[bytearray, random.Random], bytes | bytearray],
) -> Callable[[Path, random.Random], None]:
    def apply(file: Path, chance: random.Random) -> None:
        file.write_bytes(change(bytearray(file.read_bytes()) or bytearray(b" "), chance))

    apply.__name__ = change.__name__
    return apply


@_rewritten
def bits(data: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice((1, 4, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


@_rewritten
def cut(data: bytearray, chance: random.Random) -> bytearray:
    return data[: chance.randrange(len(data))]


@_rewritten
def block(data: bytearray, chance: random.Random) -> bytearray:
    begin = chance.randrange(len(data))
    piece = chance.choice((b"", data[begin : begin + 64] * 2, b"\xff" * 64, bytes(64), b"\x1b[31m", b"\xed\xa0\x80"))
    return data[:begin] + piece + data[begin + 64 :]


@_rewritten
def number(data: bytearray, chance: random.Random) -> bytes:
    """One number of a text becomes another, in binary files four bytes do."""
    places = list(re.finditer(rb"-?\d[\d.,e+-]*", bytes(data)))
    values = (b"1" * 5_000, b"-1", b"1e999", b"NaN", b"9223372036854775808", b"5/1,5", b"0", b'"x"', b"null", b"1,,2")
    if not places:
        return bytes(data)
    at = chance.choice(places)
    return bytes(data[: at.start()]) + chance.choice(values) + bytes(data[at.end() :])


@_rewritten
def length(data: bytearray, chance: random.Random) -> bytearray:
    """Eight bytes that may be a length or an offset."""
    begin = chance.randrange(max(1, len(data) // 8)) * 8
    data[begin : begin + 8] = chance.choice((2**63 - 1, 2**31, 2**40, 2**64 - 1)).to_bytes(8, "little")
    return data


@_rewritten
def nested(data: bytearray, chance: random.Random) -> bytearray:
    return chance.choice((bytearray(b"[") * 200_000, bytearray(b'{"a":') * 100_000, data * 50))


@_rewritten
def retyped(data: bytearray, chance: random.Random) -> bytes:
    """One value of a JSON document becomes one of another type."""
    try:
        document = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return bytes(data[::-1])
    at = document
    while isinstance(at, dict | list) and at:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = chance.choice(keys)
        if not isinstance(at[key], dict | list) or not at[key] or chance.random() < 0.3:
            at[key] = chance.choice(
                (None, [], {}, "\x1b]0;x\x07", -(2**70), 1e308, True, "../../../etc/passwd", [[[]]])
            )
            break
        at = at[key]
    return json.dumps(document).encode()


def sparse(file: Path, chance: random.Random) -> None:
    os.truncate(file, SPARSE_BYTES)


def pipe(file: Path, chance: random.Random) -> None:
    file.unlink()
    os.mkfifo(file)


def endless(file: Path, chance: random.Random) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def folder(file: Path, chance: random.Random) -> None:
    file.unlink()
    file.mkdir()


CHANGES = (bits, cut, block, number, length, nested, retyped, sparse, pipe, endless, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=MUTANTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more mutants after that time")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_MUTANTS} mutants")
    parser.add_argument("--keep", type=Path, help="where the mutants go that did not survive")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="steadytrain-mutants-") as place:
        count = QUICK_MUTANTS if options.quick else options.count
        results = attack(count, seed=options.seed, place=Path(place), keep=options.keep, seconds=options.seconds)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in results], indent=1), encoding="utf-8")
    sys.exit(1 if any(result.why for result in results) else 0)


if __name__ == "__main__":
    main()

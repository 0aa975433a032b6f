"""Attack: kills, full disks, errors of the disk, short writes and slow disks at random system calls.

A library of our own (``attack_programs/kills/faults.c``, compiled when this starts, loaded by LD_PRELOAD) counts the
system calls on files below the run folder. Each phase runs once without a fault to count them; then a call is drawn and
the fault happens there. Afterwards script's output, status and weights are those of the bare run (but after a kill),
the script's checkpoints load, `show`, `runs` and `query` answer, every bundle is whole and listed, no step is lost but
the one in flight, nothing half-written stays after the next run, and what a disk took is said. Commands are called a
second time and work.

    python benchmarks/attack_kills.py [--faults N] [--quick] [--seed N] [--only PHASE] [--jobs N] [--json FILE]
    python benchmarks/attack_kills.py --only PHASE --fault FAULT --call N [--keep FOLDER]      repeats one
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"
PROGRAMS = Path(__file__).resolve().parent / "attack_programs" / "kills"
RUNS = "steadytrain-runs"
STATE_BYTES = 520
PROCESS_S_MAX = 600.0
"""One that hangs takes this long; one on a busy machine may not."""

FAULTS_BY_DEFAULT = 500
QUICK_FAULTS = 14
QUICK_PHASES = ("run", "incident", "compaction", "replay")
AT_LEAST = 4
"""Faults that are tried however little time ``--seconds`` gives: to count the calls may take all of it."""

THE_INCIDENT = "the incident"
TAPE_BYTES_LEFT_MAX = 16 << 10
LOST = re.compile(r"^steadytrain: .*(fail|cannot|could not|stopped|No space|dropped|error)", re.IGNORECASE)

AMOUNTS = {"full": 0, "full-brief": 25, "slow": 15}
"""Calls without space (0: for ever), milliseconds a call."""

FAULTS = {"kill-before": 30, "kill-after": 25, "full": 10, "full-brief": 8, "quota": 8, "eio": 9, "short": 5, "slow": 5}
"""How often each is drawn, in percent."""


@dataclass(frozen=True)
class Phase:
    """What runs, and how often it is drawn, in percent. ``again``: a command on a finished bundle, not a training.
    ``saves``: the script's checkpoints are checked too, so calls on its files count, and only kills are drawn."""

    line: tuple[str, ...]
    share: int
    script: tuple[str, ...] = ()
    again: bool = False
    saves: bool = False


_RUN = ("run", "--level", "full", "--name", "run")
PHASES = {
    "run": Phase((*_RUN, "train.py"), 22, ("60", "0", "0.003")),
    "snapshot": Phase((*_RUN, "--keep-rewind", "train.py"), 16, ("60", "0", "0.003")),
    "compaction": Phase((*_RUN, "--rewind-mb", "0", "train.py"), 18, ("200", "0", "0.002")),
    "incident": Phase((*_RUN, "train.py"), 24, ("40", "30", "0.003")),
    "pin": Phase((*_RUN, "saves.py"), 12, ("60", "0", "0.003"), saves=True),
    "roll-back": Phase((*_RUN, "--policy", "steady", "saves.py"), 12, ("110", "75", "0.003"), saves=True),
    "replay": Phase(("replay", f"{RUNS}/run", "--once"), 7, again=True),
    "locate": Phase(("locate", f"{RUNS}/run"), 6, again=True),
    "diagnose": Phase(("diagnose", f"{RUNS}/run", "--budget", "20s"), 7, again=True),
}


@dataclass(frozen=True)
class Fault:
    phase: str
    kind: str
    call: int

    @property
    def amount(self) -> int:
        return AMOUNTS.get(self.kind, 0)

    @property
    def repeats(self) -> str:
        return f"--only {self.phase} --fault {self.kind} --call {self.call}"


@dataclass(frozen=True)
class Ended:
    """How a process ended (status None: it was too slow), and what the library noted."""

    status: int | None
    out: str
    err: str
    calls: int = 0
    struck: int = 0
    struck_ns: int = 0
    what: str = ""


@dataclass(frozen=True)
class Tried:
    phase: str
    fault: str
    call: int
    what: str
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


class Attack:
    """The folder in which all is tried, the interpreter, and what each phase does without a fault."""

    def __init__(self, base: Path, *, keep: Path | None = None, on: str = "") -> None:
        self._base = base
        self._keep = keep
        self._on = on
        self._numbers = itertools.count(1)
        self._making = threading.Lock()
        os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", XDG_STATE_HOME=str(base / "home"))
        os.environ["LD_PRELOAD"] = str(library(base))
        sys.path.insert(0, str(TESTS))
        import warm

        self._python = warm.python()
        del os.environ["LD_PRELOAD"]
        self._bundle = base / "prepared"
        self.expected: dict[str, Ended] = {}
        self.kinds: dict[str, list[list[int]]] = {}

    # -- one process -----------------------------------------------------------------------------------------------

    def call(self, line: Sequence[str], case: Path, plan: str = "", *, under: str = "", trace: str = "") -> Ended:
        """Run it in ``case/work``, with a fault ``plan`` (none if empty) on the files below ``under``."""
        variables = {**os.environ, "TMPDIR": str(case / "tmp"), "LD_PRELOAD": str(self._base / "faults.so")}
        state = case.with_name(f"{case.name}.state")
        state.write_bytes(bytes(STATE_BYTES))
        if plan:
            variables |= {"ATTACK_FAULT": plan, "ATTACK_FAULT_STATE": str(state), "ATTACK_FAULT_UNDER": under}
            variables |= {"ATTACK_FAULT_TRACE": trace} if trace else {}
        files = [case.with_name(f"{case.name}.{name}") for name in ("out", "err")]
        with files[0].open("wb") as out, files[1].open("wb") as err:
            process = subprocess.Popen(
                [self._python, *line],
                cwd=case / "work",
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
            try:
                status: int | None = process.wait(PROCESS_S_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status = None
        texts = [file.read_text(errors="replace").replace(str(case), ".") for file in files]
        calls, struck, struck_ns, _, what = struct.unpack(f"<QQQq{STATE_BYTES - 32}s", state.read_bytes())
        return Ended(status, *texts, calls, struck, struck_ns, what.rstrip(b"\0").decode(errors="replace"))

    def attacked(self, name: str, case: Path, plan: str, trace: str = "") -> Ended:
        """Run the phase with a fault."""
        phase = PHASES[name]
        under = str(case if phase.again else case / "work" if phase.saves else case / "work" / RUNS)
        return self.call(self._line(phase), case, plan, under=under, trace=trace)

    def _line(self, phase: Phase) -> list[str]:
        if phase.again:
            return ["-m", "steadytrain", *phase.line]
        return [str(PROGRAMS / "small_run.py"), *phase.line, *phase.script]

    def case(self, phase: Phase) -> Path:
        """A fresh folder for one try; for a command on a bundle, with a copy of one."""
        case = self._base / f"case-{next(self._numbers)}"
        if phase.again:
            shutil.copytree(self._prepared(), case)
        else:
            _fill(case)
        return case

    def _prepared(self) -> Path:
        with self._making:
            if not self._bundle.exists():
                _fill(self._bundle)
                line = ["-m", "steadytrain", *PHASES["incident"].line, *PHASES["incident"].script]
                ended = self.call(line, self._bundle)
                if ended.status != 70:
                    raise SystemExit(f"attack_kills: no bundle to begin with: {ended.err}")
        return self._bundle

    # -- without a fault -------------------------------------------------------------------------------------------

    def count(self, name: str) -> int:
        """The number of calls that the phase makes, after a first pass without a fault."""
        phase = PHASES[name]
        case = self.case(phase)
        trace = self._base / f"{name}.trace"
        expected = self.attacked(name, case, "none 0 0", str(trace))
        if not phase.again and phase.script[1] == "0":
            bare = self.call([phase.line[-1], *phase.script], case)
            if (bare.status, bare.out) != (expected.status, expected.out):
                raise SystemExit(f"attack_kills: without a fault, {name} is not as the bare run: {expected.err}")
        self.expected[name] = expected
        calls = collections.defaultdict(list)
        for line in trace.read_text(errors="replace").splitlines():
            number, what = line.split(" ", 1)
            calls[re.sub(r"\d+|(?<=\.json\.)\w+|tmp\w+", "N", what)].append(int(number))
        self.kinds[name] = [numbers for what, numbers in calls.items() if re.search(self._on, what)]
        shutil.rmtree(case, ignore_errors=True)
        return expected.calls

    # -- with one --------------------------------------------------------------------------------------------------

    def attack(self, fault: Fault) -> Tried:
        phase = PHASES[fault.phase]
        case = self.case(phase)
        kind = "full" if fault.kind == "full-brief" else fault.kind
        ended = self.attacked(fault.phase, case, f"{kind} {fault.call} {fault.amount}")
        wrong = wrong_at_the_end(fault, ended, self.expected[fault.phase])
        if phase.again:
            second = self.call(self._line(phase), case)
            if second.status != self.expected[fault.phase].status:
                wrong.append(f"called again, it ended with {second.status}: {_last(second.err)}")
        found = self._after(case, "" if phase.again else "train.py", ended)
        wrong += found["wrong"]
        lost = [] if phase.again else lost_of(fault, found)
        if not phase.again:
            wrong += wrong_of_the_disk(fault, ended, lost, found, case / "work" / RUNS / "run")
        if wrong and self._keep is not None:
            kept = self._keep / f"{fault.phase}-{fault.kind}-{fault.call}"
            shutil.copytree(case / "work", kept, dirs_exist_ok=True)
            (kept / "standard-error.txt").write_text(ended.err)
        shutil.rmtree(case, ignore_errors=True)
        return Tried(fault.phase, fault.kind, fault.call, ended.what, wrong, lost)

    def _after(self, case: Path, script: str, ended: Ended) -> dict[str, Any]:
        runs = case / "work" / RUNS
        looked = self.call([str(PROGRAMS / "after.py"), str(runs), script, str(ended.struck_ns)], case)
        try:
            found: dict[str, Any] = json.loads(looked.out)
        except ValueError:
            return {"wrong": [f"looking at it failed: {_last(looked.err)}"], "steps": {}, "incidents": {}, "said": {}}
        return found


def _fill(case: Path) -> None:
    for folder in ("work", "tmp"):
        (case / folder).mkdir(parents=True)
    for program in ("train.py", "saves.py"):
        shutil.copy(PROGRAMS / program, case / "work")


def library(folder: Path) -> Path:
    """The compiled library of faults, in ``folder``."""
    made = folder / "faults.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", str(made), str(PROGRAMS / "faults.c")], check=True)
    return made


# -- what must hold ----------------------------------------------------------------------------------------------------


def wrong_at_the_end(fault: Fault, ended: Ended, expected: Ended) -> list[str]:
    """How the process ended, and what it said."""
    wrong = []
    of_script = "/written-" in ended.what  # a file that the relaunched script writes itself: the traceback is its own
    if "Traceback (most recent call last)" in ended.err and not of_script:
        wrong.append(f"a traceback: {_last(ended.err)}")
    if ended.status is None:
        wrong.append(f"no end within {PROCESS_S_MAX:g} s")
    said = collections.Counter(line for line in ended.err.splitlines() if line.startswith("steadytrain: "))
    wrong += [f"said {times} times: {line}" for line, times in said.items() if times > 1]
    if fault.kind.startswith("kill"):
        if ended.struck and ended.status != -9 and not PHASES[fault.phase].again:
            wrong.append(f"killed, it ended with {ended.status}")
    elif not PHASES[fault.phase].again and (ended.status, ended.out) != (expected.status, expected.out):
        wrong.append(f"ended with {ended.status}, {ended.out.strip()!r}: {_last(ended.err)}")
    return wrong


def lost_of(fault: Fault, found: dict[str, Any]) -> list[str]:
    """What the run folder lacks of what a run without a fault has: steps, the incident."""
    script = PHASES[fault.phase].script
    steps, have = int(script[1]) or int(script[0]), found["steps"].get("run", 0)
    lost = [f"{steps - have} steps"] if have < steps else []
    return [*lost, THE_INCIDENT] if int(script[1]) and not found["incidents"].get("run") else lost


def wrong_of_the_disk(fault: Fault, ended: Ended, lost: list[str], found: dict[str, Any], run: Path) -> list[str]:
    """What a disk took has to be said, and room to be made for an incident."""
    if fault.kind.startswith("kill") or not ended.struck or not lost:
        return []
    wrong = []
    if not any(LOST.match(line) for line in ended.err.splitlines()):
        wrong.append(f"nothing is said on standard error of what was lost: {', '.join(lost)}")
    if fault.kind in ("slow", "short"):
        wrong.append(f"lost: {', '.join(lost)}")
    if fault.kind == "quota" and THE_INCIDENT in lost and (left := _own_bytes(run)) > TAPE_BYTES_LEFT_MAX:
        wrong.append(f"no incident, and {left} bytes of the tape are still there")
    if fault.kind == "quota" and found["steps"].get("run") and not found["said"].get("run"):
        wrong.append("show --json does not say that the recording stopped")
    return wrong


def _own_bytes(run: Path) -> int:
    """The bytes of tape and snapshots that no bundle has too."""
    states = [file.lstat() for name in ("tape", "snapshots") for file in (run / name).rglob("*") if file.is_file()]
    return sum(state.st_size for state in states if state.st_nlink == 1)


def _last(err: str) -> str:
    return next((line[:240] for line in reversed(err.strip().splitlines()) if line.strip()), "")


# -- which faults ------------------------------------------------------------------------------------------------------


def drawn(attack: Attack, counts: dict[str, int], number: int, seed: int, *, on_kinds: float) -> Iterator[Fault]:
    """So many faults: that share of them at a kind of call first, so that the rare ones are met too, others at any."""
    chance, names = random.Random(seed), list(counts)
    for turn in range(number):
        name = names[turn] if turn < len(names) else chance.choices(names, [PHASES[one].share for one in names])[0]
        call = chance.randint(1, counts[name])
        if attack.kinds[name] and chance.random() < on_kinds:
            call = chance.choice(chance.choice(attack.kinds[name]))
        shares = {kind: share for kind, share in FAULTS.items() if kind.startswith("kill") or not PHASES[name].saves}
        yield Fault(name, chance.choices(list(shares), list(shares.values()))[0], call)


def table(tried: Sequence[Tried]) -> str:
    rows = collections.Counter((one.phase, one.fault) for one in tried)
    held = collections.Counter((one.phase, one.fault) for one in tried if not one.wrong)
    lines = ["| phase and fault | tried | survived |", "|---|---|---|"]
    lines += [f"| {phase}, {fault} | {rows[phase, fault]} | {held[phase, fault]} |" for phase, fault in sorted(rows)]
    return "\n".join([*lines, f"| all | {len(tried)} | {sum(held.values())} |"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=FAULTS_BY_DEFAULT, metavar="N")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_FAULTS} faults of {len(QUICK_PHASES)} phases")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no further fault after so long")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PHASES, action="append", metavar="PHASE", help=", ".join(PHASES))
    parser.add_argument(
        "--on", metavar="PATTERN", help="only at calls whose name and path match this regular expression"
    )
    parser.add_argument("--fault", choices=FAULTS, help="this fault alone, at the call of --call")
    parser.add_argument("--call", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="copy the folders of what failed there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    names, begin = options.only or list(QUICK_PHASES if options.quick else PHASES), time.monotonic()
    number = min(options.faults, QUICK_FAULTS) if options.quick else options.faults
    with tempfile.TemporaryDirectory(prefix="attack-kills-", ignore_cleanup_errors=True) as base:
        attack = Attack(Path(base), keep=options.keep, on=options.on or "")
        tried = []
        with ThreadPoolExecutor(options.jobs) as pool:
            counts = dict(zip(names, pool.map(attack.count, names), strict=True))
            faults = list(drawn(attack, counts, number, options.seed, on_kinds=1.0 if options.on else 0.5))
            if options.fault:
                faults = [Fault(name, options.fault, options.call) for name in names]

            def in_time(turn: int, fault: Fault) -> Tried | None:
                late = turn >= AT_LEAST and time.monotonic() > begin + options.seconds
                return None if late else attack.attack(fault)

            for fault, one in zip(faults, pool.map(in_time, itertools.count(), faults), strict=True):
                if one is not None:
                    tried.append(one)
                    for wrong in one.wrong:
                        print(f"FAILED {fault.repeats}  ({one.what}): {wrong}", flush=True)
    print(f"\n{table(tried)}\n\n{time.monotonic() - begin:.0f} s")
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in tried], indent=1), encoding="utf-8")
    return 1 if any(one.wrong for one in tried) else 0


if __name__ == "__main__":
    sys.exit(main())

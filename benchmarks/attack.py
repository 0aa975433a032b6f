"""Attack: all attacks one after the other, each within its share of the time; what was tried, and what survived.

    python benchmarks/attack.py [--quick] [--only NAME] [--seed N] [--json FILE] [--into FOLDER]

``--quick`` is the short form of the tests: two minutes. The whole form takes fifteen minutes on two cores and draws
what it tries anew each time; the seed that it prints repeats it. Each attack runs by itself too, without a bound.
``--into`` keeps what was tried, and ways and functions that are there already are left out: ``attack_sums.py`` adds up.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Part:
    """An attack: its script and options, and its share of the time in the whole and in the short form, in seconds.

    ``kept`` is its name in the folder of ``--into``; with ``goes_on`` it leaves out what is there already.
    """

    name: str
    words: tuple[str, ...]
    seconds: int
    quick_s: int
    kept: str
    goes_on: bool = False


PARTS = (
    Part("kills and faults of the disk", ("attack_kills.py",), 195, 30, "kills"),
    Part("ways to train", ("attack_ways.py", "--warm"), 195, 20, "ways", goes_on=True),
    Part("checkpoints of scripts, kept and judged", ("attack_saves.py",), 60, 10, "saves"),
    Part("relaunched scripts", ("attack_relaunched.py",), 90, 15, "relaunched"),
    Part("a function of ours raises, eager", ("attack_sweep.py", "--mode", "eager"), 60, 15, "eager", goes_on=True),
    Part(
        "a function of ours raises, compiled",
        ("attack_sweep.py", "--mode", "compiled"),
        60,
        0,
        "sweep_compiled",
        goes_on=True,
    ),
    Part(
        "a function of ours raises, two ranks",
        ("attack_sweep.py", "--mode", "ranks"),
        60,
        0,
        "sweep_ranks",
        goes_on=True,
    ),
    Part("damaged files", ("attack_mutants.py",), 90, 15, "mutants"),
    Part("hostile requests to ui", ("attack_served.py",), 30, 0, "served"),
    Part("secrets", ("attack_secrets.py", "--quick"), 60, 20, "secrets"),
)


@dataclass(frozen=True)
class Outcome:
    attack: str
    tried: int
    survived: int
    seconds: float
    failures: tuple[str, ...]


def run(part: Part, *, seed: int, seconds: int, into: Path | None = None) -> Outcome:
    """Run one attack; its output goes to the terminal as it comes, and its tries into the folder ``into``."""
    script, *words = part.words
    line = [sys.executable, str(HERE / script), *words, "--seed", str(seed), "--seconds", str(seconds)]
    if into is not None:
        line += ["--json", str(into / f"{part.kept}-{seed}.json")]
        line += ["--but", *map(str, into.glob(f"{part.kept}-*.json"))] if part.goes_on else []
    began = time.monotonic()
    printed = []
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for text in process.stdout:
            printed.append(text.rstrip())
            print(text, end="", flush=True)
    tried, survived = counted(printed)
    failures = tuple(text for text in printed if text.startswith("FAILED"))
    if process.returncode != 0 and tried == survived:
        failures = (*failures, f"FAILED {script} ended with {process.returncode}")
        tried += 1
    return Outcome(part.name, tried, survived, time.monotonic() - began, failures)


def counted(lines: list[str]) -> tuple[int, int]:
    """Tried and survived of the tables in ``lines``: of their rows named ``all``, else of all rows."""
    rows = []
    for line in lines:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        numbers = [re.match(r"[\d,]+", cell) for cell in cells[1:3]]
        if line.startswith("| ") and len(numbers) == 2 and all(numbers):
            rows.append((cells[0], *(int(found[0].replace(",", "")) for found in numbers if found)))
    whole = [row for row in rows if row[0] == "all"] or rows
    return sum(row[1] for row in whole), sum(row[2] for row in whole)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the short form: two minutes")
    parser.add_argument("--only", default="", metavar="NAME", help="attacks with this word in their name")
    parser.add_argument("--seed", type=int, help="what is drawn (default: another one each time)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="keep there what was tried, and go on from there")
    options = parser.parse_args()
    if options.into:
        options.into.mkdir(parents=True, exist_ok=True)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    outcomes = []
    for part in PARTS:
        seconds = part.quick_s if options.quick else part.seconds
        if options.only in part.name and seconds:
            print(f"\n{part.name}, {seconds} s, seed {seed}", flush=True)
            outcomes.append(run(part, seed=seed, seconds=seconds, into=options.into))
    if not outcomes:
        parser.error(f"no attack has {options.only!r} in its name")
    print("\n| attack | tried | survived | seconds |\n|---|---|---|---|")
    for one in outcomes:
        print(f"| {one.attack} | {one.tried:,} | {one.survived:,} | {one.seconds:.0f} |")
    tried, survived = sum(one.tried for one in outcomes), sum(one.survived for one in outcomes)
    print(f"| all | {tried:,} | {survived:,} | {sum(one.seconds for one in outcomes):.0f} |")
    for one in outcomes:
        for failure in one.failures:
            print(f"{one.attack}: {failure}")
    if options.json:
        document = {"schema": "steadytrain.attack/1", "seed": seed, "attacks": [asdict(one) for one in outcomes]}
        options.json.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return 0 if tried and tried == survived else 1


if __name__ == "__main__":
    sys.exit(main())

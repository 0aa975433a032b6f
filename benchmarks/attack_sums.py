"""What several runs of the attacks tried in sum, each different try once.

    python benchmarks/attack_sums.py FOLDER

``attack.py --into FOLDER`` and the option ``--json`` of each attack write files there, one for each attack and seed.
The newest result of a try counts; a try that failed before and survives now is in the column "mended".
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Sum:
    """``tried``: different tries. ``runs``: tries in all. ``failing``: names of those that failed when last tried."""

    attack: str
    runs: int
    tried: int
    mended: int
    failing: tuple[str, ...]


def tries(document: Any) -> Iterator[tuple[str, bool, str]]:
    """Name, whether it survived, and a note, of each try in the result of one attack."""
    if isinstance(document, dict):  # places of secrets: counts
        for place, counted in document["places"].items():
            for at in range(counted["tried"]):
                yield f"{place} {at + 1}", at < counted["survived"], ""
        return
    for one in document:
        if "phase" in one:
            name = f"{one['phase']} {one['fault']} {one['call']}"
            yield name, not one["wrong"], "; ".join(one["wrong"])
        elif "why" in one:
            yield one["what"], not one["why"], one["why"]
        else:
            yield one.get("name") or one["function"], one["survived"], one["note"]


def summed(folder: Path) -> list[Sum]:
    """One sum for each attack: the files of ``folder`` are named ``ATTACK-SEED.json``, the oldest comes first."""
    files = sorted(folder.glob("*-*.json"), key=lambda file: file.stat().st_mtime)
    names = dict.fromkeys(sorted(file.stem.rpartition("-")[0] for file in files))
    return [_summed(name, [file for file in files if file.stem.rpartition("-")[0] == name]) for name in names]


def _summed(attack: str, files: list[Path]) -> Sum:
    held: dict[str, bool] = {}
    failed, notes, runs = set(), {}, 0
    for file in files:
        seed = file.stem.rpartition("-")[2]
        for bare, survived, note in tries(json.loads(file.read_text(encoding="utf-8"))):
            name = f"{seed}: {bare}" if attack in BY_SEED else bare
            held[name], notes[name], runs = survived, note, runs + 1
            if not survived:
                failed.add(name)
    failing = tuple(f"{name}: {notes[name]}" for name, survived in held.items() if not survived)
    return Sum(attack, runs, len(held), sum(held[name] for name in failed), failing)


BY_SEED = ("mutants", "secrets")
"""Attacks whose tries differ from seed to seed though their names do not."""


def table(sums: list[Sum]) -> str:
    lines = ["| attack | different tries | survived | of them mended |", "|---|---|---|---|"]
    for one in sums:
        lines.append(f"| {one.attack} | {one.tried:,} | {one.tried - len(one.failing):,} | {one.mended:,} |")
    tried, failing = sum(one.tried for one in sums), sum(len(one.failing) for one in sums)
    return "\n".join([*lines, f"| all | {tried:,} | {tried - failing:,} | {sum(one.mended for one in sums):,} |"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    sums = summed(parser.parse_args().folder)
    if not sums:
        parser.error("no file ATTACK-SEED.json in the folder")
    print(table(sums))
    for one in sums:
        for failing in one.failing:
            print(f"FAILED {one.attack}: {failing}")
    return 1 if any(one.failing for one in sums) else 0


if __name__ == "__main__":
    sys.exit(main())

"""Attack: scripts that save checkpoints; which ones does steadytrain call good, and does it still have the last?

Each script runs bare and under ``steadytrain run``: exit status, output and files must be the same. Then
``steadytrain checkpoints --json`` must say what the script's first comment, ``# EXPECT {...}``, says: step of the last
good one (or any of several), steps that must be flagged (none: no flag at all), steps that must be good, exit status
of the command. The last good one must load, with finite parameters.

    python benchmarks/attack_saves.py [FOLDER] [--only WORD...] [--jobs N] [--seconds S] [--seed N] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import torch
from attack_ways import OWN_FAILURE, RUNS, End, Way, difference, run
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

PROGRAMS = Path(__file__).parent / "attack_programs" / "saves"
MARK = "# EXPECT "
SCHEMA = "steadytrain.checkpoints/1"
FLAGS = ("sick", "not-finite")
WEIGHTS = (".pt", ".pth", ".safetensors")
COMMAND_S_MAX = 60.0
INDEX = ".metadata"  # of a folder that torch.distributed.checkpoint wrote
MASK = "mask"  # a buffer of this name holds -inf by design


def attack(program: Path) -> Way:
    comment = takewhile(lambda line: line.startswith("#"), program.read_text(encoding="utf-8").splitlines())
    expected = json.loads("".join(line.removeprefix(MARK).removeprefix("#") for line in comment))
    wrong: list[str] = []
    bare = run(program, ())
    watched = run(
        program,
        ("-m", "steadytrain", "run", *expected["options"]),
        lambda folder: wrong.extend(complaints(folder, expected)),
    )
    note = difference(comparable(bare), comparable(watched))
    failures = [line for line in watched.err.splitlines() if OWN_FAILURE in line]
    wrong = [*([f"the script noticed: {note}"] if note else []), *failures[:1], *wrong]
    return Way(program.stem, not wrong, "; ".join(wrong))


def comparable(end: End) -> End:
    """Without the index of a distributed checkpoint: it holds an identity drawn anew by each save."""
    return replace(end, files={name: sha for name, sha in end.files.items() if Path(name).name != INDEX})


def complaints(folder: Path, expected: dict[str, Any]) -> Iterator[str]:
    """What the command says of the newest run in ``folder`` that it should not, in words."""
    line = [sys.executable, "-m", "steadytrain", "checkpoints", "--json", "--runs-dir", str(folder / RUNS)]
    try:
        ended = subprocess.run(line, cwd=folder, capture_output=True, text=True, timeout=COMMAND_S_MAX, check=False)
        said = json.loads(ended.stdout)
    except subprocess.TimeoutExpired:
        yield "the command does not end"
        return
    except ValueError:
        yield f"no JSON, status {ended.returncode}: {ended.stderr.strip()[-200:]}"
        return
    if said.get("schema") != SCHEMA:
        yield f"schema {said.get('schema')}"
    if ended.returncode != expected["exit_status"]:
        yield f"command's status {ended.returncode} instead of {expected['exit_status']}"
    yield from verdicts(said["checkpoints"], expected)
    last, wanted = said["last_good"], expected["last_good_step"]
    step = last and last["step"]
    if step not in (wanted if isinstance(wanted, list) else [wanted]):
        yield f"last good at step {step} instead of {wanted}"
    if last:
        yield from unusable(folder / last["path"])


def verdicts(noted: list[dict[str, Any]], expected: dict[str, Any]) -> Iterator[str]:
    listed = ", ".join(f"{Path(each['path']).name}@{each['step']} {each['verdict']}" for each in noted) or "nothing"
    flagged = {each["step"] for each in noted if each["verdict"] in FLAGS}
    good = {each["step"] for each in noted if each["verdict"] == "good"}
    if missed := set(expected["flagged_steps"]) - flagged:
        yield f"not flagged: {sorted(missed)} (listed: {listed})"
    if called_good := set(expected["flagged_steps"]) & good:
        yield f"sick but called good: {sorted(called_good)}"
    false = flagged if not expected["flagged_steps"] else flagged & set(expected["good_steps"])
    if false:
        yield f"flagged without reason: {sorted(false)} (listed: {listed})"
    if missing := set(expected["good_steps"]) - good:
        yield f"not called good: {sorted(missing)} (listed: {listed})"


def unusable(path: Path) -> Iterator[str]:
    """Why the checkpoint at ``path`` (of a folder: its first file of weights) does not serve to go on from."""
    if (path / INDEX).is_file():
        dcp_to_torch_save(path, path.parent / "joined.pt")
        path = path.parent / "joined.pt"
    found = sorted(each for each in path.rglob("*") if each.suffix in WEIGHTS) if path.is_dir() else [path]
    if not found or not found[0].is_file():
        yield f"no file of weights at {path.name}"
        return
    file = found[0]
    try:
        safe = file.suffix == ".safetensors"
        content = load_file(file) if safe else torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # any failure to load is the finding
        yield f"{file.name} does not load: {type(error).__name__}: {str(error)[:120]}"
        return
    bad = [name for name, value in tensors(content) if MASK not in name and not torch.isfinite(value).all()]
    if bad:
        yield f"{file.name} is called good and is not finite in {bad[0]}"


def tensors(content: object, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(content, torch.Tensor):
        yield name, content
    elif isinstance(content, dict):
        for key, value in content.items():
            yield from tensors(value, f"{name}.{key}")
    elif isinstance(content, (list, tuple)):
        for index, value in enumerate(content):
            yield from tensors(value, f"{name}.{index}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=PROGRAMS)
    parser.add_argument("--only", nargs="+", metavar="WORD", help="only scripts with such a word in their name")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no more scripts after that time")
    parser.add_argument("--seed", type=int, help="try them in an order drawn with it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    options = parser.parse_args()
    programs = [
        path for path in sorted(options.folder.glob("*.py")) if any(word in path.stem for word in options.only or [""])
    ]
    if not programs:
        parser.error(f"no script in {options.folder}")
    if options.seed is not None:
        random.Random(options.seed).shuffle(programs)
    until = time.monotonic() + options.seconds
    saves = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for save in pool.map(lambda program: attack(program) if time.monotonic() < until else None, programs):
            if save is not None:
                saves.append(save)
                print(f"{'survived' if save.survived else 'FAILED  '} {save.name}  {save.note}", flush=True)
    survived = sum(save.survived for save in saves)
    print("\n| attack | tried | survived |\n|---|---|---|")
    print(f"| saved checkpoints | {len(saves)} | {survived} |")
    if options.json:
        options.json.write_text(json.dumps([asdict(save) for save in saves], indent=1), encoding="utf-8")
    return 0 if survived == len(saves) else 1


if __name__ == "__main__":
    sys.exit(main())

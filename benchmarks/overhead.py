"""What watching costs: step time, memory and host reads of a GPT on the CPU, bare and watched by many.

    make bench                               # everything, about twenty minutes
    python benchmarks/overhead.py --quick    # a smoke test: small model, few rounds, numbers without meaning
    python benchmarks/overhead.py --arms "steadytrain standard,wandb.watch" --rounds 10

The arms are processes that compute the same steps from the same seed and take turns, one step each. Within a round the
ratio to the bare step is taken; the table has the median of these ratios. The second bare arm shows what the
measurement can tell apart. A second table has the time inside our own entry points, which is far less noisy. The last
tables have what the cadences cannot show: the first 500 steps of a run, 300 forwards a step, steps of a millisecond,
and long runs of steps below that, after an allowance of 1 s instead of 20.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

from cost.arms import ARMS, BARE, Arm
from cost.case import RARE_EVERY, Case
from cost.paced_run import paced_table
from cost.referee import ArmFailedError, compare, measure_memory
from cost.short_runs import SHORT_RUNS, short_table
from cost.table import as_json, heading, own_table, table

ROUNDS = 2 * RARE_EVERY
"""Timed ones; every cadence falls due twice."""

THIRTY = Case("30 M", layers=8, width=512)
TEN = Case("10 M", layers=6, width=320)
MODELS = "30,10,30-no-clipping,short"
QUICK = Case("1 M", layers=1, width=64, vocab=512, context=32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smoke test")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"timed rounds of every model (default: {ROUNDS})")
    parser.add_argument("--arms", default=",".join(ARMS), help="names with commas between; the bare ones come too")
    parser.add_argument("--models", default=MODELS, help="which of these (default: all)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all that was measured")
    args = parser.parse_args()
    try:
        arms = chosen(args.arms)
        cases = [(QUICK, arms)] if args.quick else [(case, _for_case(case, arms)) for case in models(args.models)]
        if args.rounds < 1:
            raise ValueError(f"--rounds {args.rounds}: at least one")
    except ValueError as error:
        parser.exit(2, f"overhead: {error}\n")
    measured = []
    for case, of_case in cases:
        try:
            runs = compare(case, of_case, rounds=args.rounds, progress=progress)
            if not args.quick:
                measure_memory(case, runs, progress=progress)
        except ArmFailedError as error:
            parser.exit(1, f"overhead: nothing to compare with, the bare arm failed: {error}\n")
        if not measured:
            print(f"## What watching costs\n\n{heading(runs)}\n")
        print(table(case, runs), end="\n\n")
        print(own_table(case, runs), end="\n\n", flush=True)
        measured.append(as_json(case, runs))
    if "short" in args.models.split(",") and not args.quick:
        print(short_table([(one, one.run(progress)) for one in SHORT_RUNS]), end="\n\n", flush=True)
        print(paced_table(progress), flush=True)
    if args.json:
        args.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


def chosen(names: str) -> list[Arm]:
    """The bare arms, and those of that name with the ones they are compared with.

    Raises:
        ValueError: there is no such arm.
    """
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    for name in wanted:
        if name not in ARMS:
            raise ValueError(f"{name!r}: no such arm; one of {', '.join(ARMS)}")
    needed = {*BARE, *wanted, *(ARMS[name].against for name in wanted)}
    return [arm for arm in ARMS.values() if arm.name in needed]


def models(names: str) -> list[Case]:
    """The cases of that name.

    Raises:
        ValueError: there is no such model.
    """
    known = {"30": THIRTY, "10": TEN, "30-no-clipping": replace(THIRTY, clip=False), "short": None}
    for name in names.split(","):
        if name not in known:
            raise ValueError(f"{name!r}: no such model; one of {', '.join(known)}")
    return [case for name in names.split(",") if (case := known[name]) is not None]


def _for_case(case: Case, arms: list[Arm]) -> list[Arm]:
    """Without clipping only our own levels: the gate then has to read the gradients itself."""
    return arms if case.clip else [arm for arm in arms if arm.is_ours or arm.name in BARE]


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<79}", end="" if text else "\r", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()

"""What each mistake costs: runs cells bare, beside the healthy run of the same seed, and writes truth.json.

    python truth.py [--minutes 12] [--loops a,b] [--full] [--fresh]

One process works at a time. The healthy run of a (loop, seed) is run once; at each onset it forks the cells of that onset
(the first `onset` steps of a cell are those of the healthy run, as schedules and data do not depend on the length).
Cells with onset 0 are run from the beginning. Passes: first every (loop, fault) at one or two onsets in rotation with
seed 0 and every silent fault from the start; then the other onsets; then seeds 1 and 2. When the time is up the rest
is left; a later call goes on where the file ends. `--full` has no limit.

harmful, from the held-out loss F of the cell and H of the healthy run (every 10 steps; the end is onset + 200):
  total = H(0) - H(end)                           what the healthy run gains in all
  lost_end = (F(end) - H(end)) / total            ends = mean of the last three probes
  lost_peak                                       share of the progress made until onset that is lost at two probes in a row
  harmful = not finite, or lost_end > 0.2, or lost_peak > 0.2 (the latter only where a tenth of total had been made)
lost_share is the larger of the two, at most 99.
"""

import argparse
import json
import math
import os
import sys
import time
import warnings

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from loops import FAULTS, LOOPS, Setting  # noqa: E402

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
HERE = os.path.dirname(os.path.abspath(__file__))
PATH = os.path.join(HERE, "truth.json")
AFTER = 200
CHEAP_FIRST = "dqn,tabular,meanteacher,vae,graphs,denoise,twotower,convbn,moe,gruseries,accumulate,grammarlm,seq2seq,patchvit,chargpt"


class Done(Exception):
    pass


class Until(list):
    """A probe list that ends the run when it is full."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def append(self, value):
        super().append(value)
        if len(self) >= self.size:
            raise Done


class Forks(list):
    """A record list of the healthy run that calls `at(step)` when the run stands before `step`."""

    def __init__(self, onsets, at):
        super().__init__()
        self.onsets, self.at = set(onsets), at

    def append(self, value):
        super().append(value)
        if len(self) in self.onsets:
            self.at(len(self))


def size(onset):
    return -(-(onset + AFTER) // 10) + 1


def lost(cell, healthy, onset):
    n = size(onset)
    if not all(math.isfinite(v) for v in cell) or len(cell) < n:
        return 99.0, 99.0, False
    h = healthy[:n]
    end = lambda v: sum(v[-3:]) / 3  # noqa: E731
    total = h[0] - end(h)
    if total <= 0:
        return 0.0, 0.0, True
    lost_end = (end(cell) - end(h)) / total
    i = onset // 10
    before = min(h[: i + 1])
    made = h[0] - before
    lost_peak = 0.0
    if made > 0.1 * total:
        over = [(c - max(v, before)) / made for c, v in zip(cell[i + 1 :], h[i + 1 :])]
        lost_peak = max((min(a, b) for a, b in zip(over, over[1:])), default=0.0)  # two probes in a row
    return min(lost_end, 99.0), min(lost_peak, 99.0), True


def cells(loop, seed, number):
    """Faults and onsets of one pass."""
    k = list(LOOPS).index(loop)
    for j, fault in enumerate(f for f in FAULTS.values() if loop in f.loops):
        if fault.onsets == (0,):
            chosen = [0] if number == 0 else []
        else:
            order = [fault.onsets[(i * 5 + j + 2 * k) % len(fault.onsets)] for i in range(len(fault.onsets))]
            order = list(dict.fromkeys(order)) + [o for o in fault.onsets if o not in order]
            chosen = order[number : number + 1]
        for onset in chosen:
            yield fault, onset


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--minutes", type=float, default=12.0)
    ap.add_argument("--loops", default=CHEAP_FIRST)
    ap.add_argument("--full", action="store_true")
    ap.add_argument("--fresh", action="store_true")
    a = ap.parse_args()
    os.nice(max(0, 10 - os.nice(0)))
    rows = [] if a.fresh or not os.path.exists(PATH) else json.load(open(PATH))["rows"]
    have = {(r["loop"], r["fault"], r["onset"], r["seed"]) for r in rows}
    start = time.time()
    spent_before = 0.0 if a.fresh or not os.path.exists(PATH) else json.load(open(PATH))["seconds"]

    def over():
        return not a.full and time.time() - start > a.minutes * 60

    def save():
        with open(PATH + ".new", "w") as f:
            f.write('{"seconds": %.0f, "rows": [\n' % (spent_before + time.time() - start))
            f.write(",\n".join(json.dumps(r) for r in rows))
            f.write("\n]}\n")
        os.replace(PATH + ".new", PATH)

    def one_pass(loop, seed, number):
        todo = [(f, o) for f, o in cells(loop, seed, number) if (loop, f.name, o, seed) not in have]
        if not todo or over():
            return
        got = {}  # (fault, onset) -> probes

        def child(fault, onset, go):
            r, w = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(r)
                return w, go
            os.close(w)
            with os.fdopen(r) as f:
                text = f.read()
            os.waitpid(pid, 0)
            got[fault.name, onset] = json.loads(text) if text else [float("nan")]
            return None

        s = Setting(steps=10**6, seed=seed, probe=Until(size(max([300] + [o for _, o in todo]))))
        pipe = None

        def branch(onset):
            nonlocal pipe
            if pipe is not None:
                return
            for fault, o in todo:
                if o == onset and not over():
                    made = child(fault, o, None)
                    if made is not None:
                        pipe = made[0]
                        s.fault, s.onset = fault.name, o
                        s.probe.size = size(o)
                        return

        s.record = Forks({o for _, o in todo if o}, branch)
        try:
            # cells that begin at once
            for fault, o in todo:
                if o == 0 and not over():
                    made = child(fault, 0, None)
                    if made is not None:
                        pipe = made[0]
                        s.fault, s.onset, s.probe.size, s.record = fault.name, 0, size(0), None
                        break
            LOOPS[loop](s)
        except Done:
            pass
        except Exception as e:  # a crash of a cell counts as not finite
            if pipe is None:
                raise
            s.probe.clear()
            list.append(s.probe, float("nan"))
            sys.stderr.write(f"{loop} {s.fault} {s.onset}: {e!r}\n")
        if pipe is not None:
            with os.fdopen(pipe, "w") as f:
                f.write(json.dumps(list(s.probe)))
            os._exit(0)
        healthy = list(s.probe)
        for fault, o in todo:
            if (fault.name, o) not in got:
                continue
            beside = healthy
            if fault.name == "bf16_lost":  # its healthy twin: the same small rate in float32
                twin = Setting(steps=10**6, seed=seed, fault="small_rate", probe=Until(size(0)))
                try:
                    LOOPS[loop](twin)
                except Done:
                    beside = list(twin.probe)
            lost_end, lost_peak, finite = lost(got[fault.name, o], beside, o)
            share = max(lost_end, lost_peak)
            rows.append(
                {
                    "loop": loop,
                    "fault": fault.name,
                    "onset": o,
                    "seed": seed,
                    "silent": fault.silent,
                    "harmful": bool(share > 0.2),
                    "lost_share": round(share, 3),
                    "finite": finite,
                    "lost_end": round(lost_end, 3),
                    "lost_peak": round(lost_peak, 3),
                }
            )
            have.add((loop, fault.name, o, seed))
        save()
        print(loop, seed, number, len(rows), f"{time.time() - start:.0f} s", flush=True)

    for name in LOOPS:  # what torch imports at the first use is imported before the forks
        LOOPS[name](Setting(steps=2))
    plan = [(0, n) for n in range(6)] + [(1, n) for n in range(6)] + [(2, n) for n in range(6)]
    plan = [(0, 0), (0, 1), (1, 0), (2, 0)] + [p for p in plan if p not in ((0, 0), (0, 1), (1, 0), (2, 0))]
    for seed, number in plan:
        for loop in a.loops.split(","):
            one_pass(loop, seed, number)
        print(f"seed {seed} pass {number}: {len(rows)} rows, {time.time() - start:.0f} s", flush=True)
        if over():
            break
    save()


if __name__ == "__main__":
    main()

"""Runs every healthy family, seeds 0 to 4, 500 steps, bare: healthy_truth.json with first, best and last probe and record."""

import json
import math
import os
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from healthy import FAMILIES, Setting  # noqa: E402

torch.set_num_threads(1)
os.nice(max(0, 10 - os.nice(0)))
names = sys.argv[1].split(",") if len(sys.argv) > 1 else list(FAMILIES)
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "healthy_truth.json")
rows = json.load(open(path)) if os.path.exists(path) else []
rows = [r for r in rows if r["family"] not in names and r["family"] in FAMILIES]
start = time.time()
for name in names:
    for seed in range(5):
        s = Setting(steps=500, seed=seed, record=[], probe=[])
        FAMILIES[name](s)
        p = s.probe
        last = sum(p[-5:]) / 5
        gain = p[0] - min(p)
        rows.append(
            {
                "family": name,
                "seed": seed,
                "first": p[0],
                "best": min(p),
                "last": last,
                "lost_of_best": round((last - min(p)) / gain, 3) if gain > 0 else None,
                "finite": all(map(math.isfinite, s.record)),
                "loss_first": s.record[0],
                "loss_last": s.record[-1],
            }
        )
        r = rows[-1]
        ok = r["finite"] and gain > 0 and (last - min(p)) < 0.2 * gain
        r["healthy"] = ok
        if not ok:
            print("DOUBT", name, seed, [round(v, 3) for v in p[::5]], flush=True)
    json.dump(rows, open(path, "w"), indent=0)
print(len(rows), "runs", sum(not r["healthy"] for r in rows), "in doubt", round(time.time() - start), "s")

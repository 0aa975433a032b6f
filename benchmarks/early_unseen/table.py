"""Counts of truth.json by fault."""

import json
import os
from collections import defaultdict

d = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "truth.json")))
by = defaultdict(list)
for r in d["rows"]:
    by[r["silent"], r["fault"]].append(r)
for (silent, fault), rows in sorted(by.items()):
    bad = [r for r in rows if r["harmful"]]
    print(
        f"{'silent' if silent else 'loud':7}{fault:22}{len(bad):3} of {len(rows):3}   onsets {sorted({r['onset'] for r in bad})}"
    )
print(sum(r["harmful"] for r in d["rows"]), "of", len(d["rows"]), "in", d["seconds"], "s")

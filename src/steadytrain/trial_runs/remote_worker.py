"""A worker in a job step: reads specs from standard input, one JSON document a line, and answers each with its outcome.

What the trials themselves print goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> None:
    source, moved = sys.argv[1:3]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    from steadytrain.trial_runs.pool import RemotePool

    pool = RemotePool(source, moved)
    print("ready", file=answers, flush=True)
    try:
        for line in sys.stdin:
            print(json.dumps(pool.run(json.loads(line)), allow_nan=False), file=answers, flush=True)
    finally:
        pool.close()


if __name__ == "__main__":
    main()

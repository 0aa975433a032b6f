"""Makes one page each of `analyze`, `compare`, `audit`, `preflight`, `check-data` and `debug` for `pages.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ZOO = Path(__file__).parents[1] / "zoo" / "runs"
CHECKPOINTS = """
import sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 1}
torch.save(state, sys.argv[1])
state["model"] = {name: value + (name == "0.bias") for name, value in state["model"].items()}
del state["optimizer"]["state"][1]
torch.save(state, sys.argv[2])
"""
ROWS = [
    *(f'"a sentence with the number {number} in it, and a few more words",{number % 2}' for number in range(400)),
    '"",0',
    *('"the same sentence again and again",1',) * 30,
    "\"<img src=x onerror='alert(1)'> caf\u00c3\u00a9\",nan",
]


def make_results(out: Path, wait_s: float) -> None:
    """Write ``of-COMMAND.html`` into ``out``, where the runs of the zoo are in ``runs``."""
    first, second = (_run_in(out / "runs" / name) for name in ("nan_row", "scores_explode"))
    good, bad, data = out / "good.pt", out / "bad.pt", out / "rows.csv"
    data.write_text("\n".join(["text,label", *ROWS]) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, "-c", CHECKPOINTS, str(good), str(bad)], check=True, timeout=wait_s)
    place = ["--runs-dir", str(first.parent)]
    for name, words in {
        "analyze": ["analyze", str(second), "--output"],
        "compare": ["compare", str(first), str(second), "--output"],
        "audit": ["audit", str(bad), "--against", str(good), "--output"],
        "check-data": ["check-data", str(data), "--output"],
        "debug": ["debug", str(first), "--budget", "60s", *place, "--output"],
    }.items():
        _write(out / f"of-{name}.html", words, wait_s)
    preflight = out / "of-preflight.html"
    _write(preflight, ["preflight", "-o", str(preflight), str(ZOO / "nan_row.py")], wait_s, named=True)


def _run_in(folder: Path) -> Path:
    return max((path.parent for path in folder.glob("*/run.json")), key=lambda path: path.stat().st_mtime)


def _write(page: Path, words: list[str], wait_s: float, *, named: bool = False) -> None:
    page.unlink(missing_ok=True)
    line = [sys.executable, "-m", "steadytrain", *words, *([] if named else [str(page)])]
    done = subprocess.run(line, capture_output=True, text=True, timeout=wait_s)
    if not page.is_file():
        raise SystemExit(f"pages: no page of {words[0]}: {done.stderr.strip() or done.stdout.strip()}")

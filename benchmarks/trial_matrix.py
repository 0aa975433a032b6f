"""Six incidents by twelve trials on a byte-level GPT: which trial removes what.

A model is trained for some hundred steps; from there runs with one incident each are recorded, the incident ten steps
after a snapshot, and every trial is followed for thirty steps. Each cell is the rise of the probe loss at its peak and
in the end, in nats, as the mean of the seeds; it is bold where the judge says that the trial removed the symptom. The
row of the healthy run is what the probes do by themselves.

Run by ``make bench-trials``: some minutes on two cores, longer beside other work. With ``--docs FILE`` the table is
written between the marks in that file, with its date and the machine.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import torch

from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.outcome_measures import excess_of
from steadytrain.experiments.specs import NotApplicable, Outcome
from steadytrain.experiments.trial_catalog import trial
from steadytrain.trial_runs.pool import Pool

SCRIPT = Path(__file__).with_name("trial_matrix_train.py")
INCIDENTS = ("bad-batch", "rate", "moments-permuted", "moments-zeroed", "bit-flip", "shift", "none")
TRIALS = (
    "unchanged",
    "perturbed",
    "drop-batch",
    "fresh-data",
    "learning-rate-third",
    "learning-rate-tenth",
    "clip",
    "reset-moments",
    "rewarm",
    "epsilon-up",
    "beta2-lower",
    "update-clipping",
)
AT, AFTER = 76, 30
"""The recorder keeps a snapshot after step 65 of every run."""

TRAINED_STEPS = 1500
BEGIN, END = "<!-- trials: begin -->", "<!-- trials: end -->"


@dataclass(frozen=True)
class Cell:
    peak: float
    final: float
    effect: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--docs", type=Path, help="a Markdown file with the marks")
    parser.add_argument("--json", type=Path, help="all numbers; rows that are there already are not measured again")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rows: dict[str, dict[str, dict[str, float | str]]] = {}
    if asked.json and asked.json.is_file():
        rows = json.loads(asked.json.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="steadytrain-matrix-") as scratch:
        for seed in range(asked.seeds):
            todo = [incident for incident in INCIDENTS if f"{incident} {seed}" not in rows]
            checkpoint = Path(scratch) / f"{seed}.pt"
            if todo:
                pretrain(seed, checkpoint)
            for incident in todo:
                measured = row(incident, checkpoint, Path(scratch) / f"runs-{seed}", asked.workers)
                rows[f"{incident} {seed}"] = {name: vars(cell) for name, cell in measured.items()}
                if asked.json:
                    asked.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    cells: dict[tuple[str, str], list[Cell]] = {}
    for key, measured_row in rows.items():
        incident, _, number = key.partition(" ")
        if int(number) < asked.seeds:
            for name, numbers in measured_row.items():
                cells.setdefault((incident, name), []).append(Cell(**numbers))  # type: ignore[arg-type]
    text = table(cells, asked.seeds)
    print(text)
    if asked.docs:
        page = asked.docs.read_text(encoding="utf-8")
        before, _, rest = page.partition(BEGIN)
        asked.docs.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
    return 0


def pretrain(seed: int, checkpoint: Path) -> None:
    """A model that has learnt what is easy, with its optimizer."""
    made = importlib.util.spec_from_file_location("trial_matrix_train", SCRIPT)
    assert made is not None
    assert made.loader is not None
    script = importlib.util.module_from_spec(made)
    made.loader.exec_module(script)
    torch.manual_seed(seed)
    model = script.GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=script.RATE, betas=(0.9, 0.999))
    for batch in script.windows(script.ROWS * TRAINED_STEPS).split(script.ROWS):
        loss = script.loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"seed {seed}: loss {loss.item():.3f} after {TRAINED_STEPS} steps", file=sys.stderr, flush=True)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)


def row(incident: str, checkpoint: Path, folder: Path, workers: int) -> dict[str, Cell]:
    """Record one run and try everything on it."""
    command = [sys.executable, "-m", "steadytrain", "run", "--keep-rewind", "--policy", "observe", "--name", incident]
    subprocess.run(
        [*command, "--runs-dir", str(folder), str(SCRIPT), str(checkpoint), incident, str(AT)],
        check=True,
        capture_output=True,
    )
    case = open_case(folder / incident, onset=AT).following(AFTER)
    assert case.begin == AT - 11, case.begins
    plans = {name: trial(name).plan(case) for name in TRIALS}
    specs = [spec for plan in plans.values() if not isinstance(plan, NotApplicable) for spec in plan]
    with Pool(folder / incident, workers=workers, keep=False) as pool:
        outcomes: dict[str, Outcome] = {outcome.spec.trial: outcome for outcome in pool.run(specs)}
    controls = [outcomes[name] for name in ("unchanged", "perturbed")]
    assert controls[0].exact, controls[0]
    cells = {}
    for name, outcome in outcomes.items():
        excess = excess_of(outcome)
        effect = trial(name).judge(case, controls, [outcome]).effect
        if excess is not None:
            cells[name] = Cell(highest(outcome), excess.final, effect)
    print(f"{incident}: {len(cells)} trials", file=sys.stderr, flush=True)
    return cells


def highest(outcome: Outcome) -> float:
    """The highest rise of the mean probe loss, in a single point; the judge wants two in a row."""
    points: dict[int, list[float]] = {}
    for seen in outcome.probes:
        if seen.loss is not None:
            trained = sum(entry.role != "probe" for entry in outcome.spec.schedule[: seen.entry])
            points.setdefault(trained, []).append(seen.loss)
    means = [statistics.mean(losses) for _, losses in sorted(points.items())]
    return max(means[1:]) - means[0]


def table(cells: dict[tuple[str, str], list[Cell]], seeds: int) -> str:
    said = platform.processor() or platform.machine()
    many = "1 seed" if seeds == 1 else f"{seeds} seeds"
    lines = [
        f"{date.today():%Y-%m-%d}, {many}, torch {torch.__version__}, {os.cpu_count()} cores ({said}), "
        f"Python {platform.python_version()}. Peak / end, nats.",
        "",
        "| trial | " + " | ".join(INCIDENTS) + " |",
        "|---|" + "---|" * len(INCIDENTS),
    ]
    for name in TRIALS:
        shown = [_cell(cells.get((incident, name), []), bold=incident != "none") for incident in INCIDENTS]
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _cell(those: list[Cell], *, bold: bool) -> str:
    if not those:
        return ""
    text = f"{statistics.mean(one.peak for one in those):.2f} / {statistics.mean(one.final for one in those):.2f}"
    removed = [one.effect == "removed" for one in those]
    if not bold or not any(removed):
        return text
    return f"**{text}**" if all(removed) else f"{text} ({sum(removed)} of {len(removed)})"


if __name__ == "__main__":
    sys.exit(main())

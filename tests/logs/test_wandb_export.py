"""The CSV that a chart of Weights & Biases exports."""

from __future__ import annotations

from pathlib import Path

import pytest
from reading import loss_at, read, signal, text

from steadytrain.core.errors import UsageError


def test_a_chart_of_two_runs(tmp_path: Path) -> None:
    names = [f"{run} - train/loss{edge}" for run in ("run-a - lr 1", "run-b") for edge in ("", "__MIN", "__MAX")]
    lines = [",".join(f'"{name}"' for name in ["train/global_step", *names])]
    for step in range(1, 101):
        b = f'"{loss_at(step)}"' if step % 2 == 0 else '""'
        lines.append(f'"{step}","{loss_at(step)}","1","2",{b},"",""')
    a, b_log = read(text(tmp_path, "wandb_export.csv", "\n".join(lines)))
    assert (a.name, b_log.name, a.kind) == ("run-a - lr 1", "run-b", "wandb-csv")
    assert signal(a, "loss") == {step: loss_at(step) for step in range(1, 101)}
    assert signal(b_log, "loss") == {step: loss_at(step) for step in range(2, 101, 2)}


def test_a_chart_of_an_evaluation(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no column looks like a training loss"):
        read(text(tmp_path, "x.csv", '"Step","a - eval/loss","a - eval/loss__MIN"\n"1","2","2"\n'))

"""A training in the kernel of a notebook: what its cells show, and what can be run again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELL_S_MAX = 300

PARTS = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

def loss_of(model, batch):
    inputs, bad = batch
    loss = model(inputs).square().mean()
    return loss + (loss - loss).sqrt().log() * 0 if bad else loss
"""

TRAIN = """
import contextlib, torch, parts, steadytrain

def train(steps, bad=0, *, watched=True, **options):
    model, optimizer = parts.build()
    torch.manual_seed(1)
    watch = steadytrain.watch(model, optimizer, **options) if watched else contextlib.nullcontext()
    with watch:
        for step in range(1, steps + 1):
            parts.loss_of(model, (torch.randn(16, 8), step == bad)).backward()
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.tolist() for parameter in model.parameters()]
"""


def ran(folder: Path, *cells: str) -> list[list[Any]]:
    """The outputs of each cell, run in a kernel of this interpreter."""
    (folder / "parts.py").write_text(PARTS, encoding="utf-8")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (TRAIN, *cells)])
    client = nbclient.NotebookClient(
        notebook, timeout=CELL_S_MAX, allow_errors=True, resources={"metadata": {"path": str(folder)}}
    )
    client.create_kernel_manager().kernel_spec_manager.whitelist = {"python3"}
    client.km.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute()
    return [list(cell.outputs) for cell in notebook.cells[1:]]


def kinds(outputs: list[Any]) -> list[str]:
    return [output.output_type for output in outputs]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_notebook_from_its_first_step_to_the_cause(tmp_path: Path) -> None:
    fine, stopped, refused, replayed, located, shown = ran(
        tmp_path,
        'train(40, watched=False) == train(40, name="fine")',
        'train(40, bad=31, name="bad", step_fn=parts.loss_of, build=parts.build)',
        'steadytrain.replay("fine")',
        'r = steadytrain.replay("bad"); r.exact, r.symptom',
        'steadytrain.locate("bad").again.located.operation',
        'steadytrain.load_run("bad")',
    )
    assert fine[-1].data["text/plain"] == "True"  # the same weights, to the last bit
    assert fine[0].data["text/plain"].startswith("finished: fine · step 40")
    assert kinds(fine) == ["display_data", "execute_result"]  # and nothing is printed

    assert stopped[0].data["text/plain"].startswith("stopped by steadytrain: bad · step 31")
    error = stopped[-1]
    assert error.ename == "RunStopped"
    assert len(error.traceback) == 1
    assert error.traceback[0].endswith("; next: steadytrain.diagnose('steadytrain-runs/bad')")

    assert [output.ename for output in refused] == ["UsageError"]
    assert "no tape" in refused[0].traceback[0] or "cannot be launched again" in refused[0].traceback[0]

    assert replayed[0].data["text/plain"] == "(True, True)"
    assert located[0].data["text/plain"] == "'aten.log.default'"
    assert "stopped by steadytrain" in shown[0].data["text/html"]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_run_whose_functions_are_typed_in_says_at_once_what_is_missing(tmp_path: Path) -> None:
    typed, replayed, diagnosed = ran(
        tmp_path,
        "def mine(model, batch): return parts.loss_of(model, batch)\n"
        'train(40, bad=31, name="bad", step_fn=mine, build=parts.build)',
        'steadytrain.replay("bad")',
        'steadytrain.diagnose("bad").replay_note',
    )
    assert "mine: not in a module" in typed[0].text
    assert "%%writefile parts.py" in replayed[0].traceback[0]
    assert "cannot be launched again" in diagnosed[0].data["text/plain"]

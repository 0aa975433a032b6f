"""``steadytrain checkpoints``: every save is noted, bad ones are flagged, the last good ones are kept."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from parameters import long
from scripts import bare, call, finished, run_script, write_script

TRAINS = """
import io, os, sys, threading
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.Linear(32, 1))
model.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.save({"rows": torch.randn(50, 8)}, "data.pt")
bad, how = int(sys.argv[1]), sys.argv[2]

def save(step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    if how == "overwrite":
        torch.save(state, "ckpt.pt")
    elif how == "rename":
        torch.save(state, "ckpt.tmp")
        os.replace("ckpt.tmp", "ckpt.pt")
    elif how == "rotate":
        with open(f"ckpt_{step}.pt", "wb") as file:
            torch.save(state, file)
        if step > 40:
            os.remove(f"ckpt_{step - 40}.pt")
    elif how == "thread":
        writer = threading.Thread(target=torch.save, args=(state, "ckpt.pt"))
        writer.start()
        writer.join()
    elif how == "folder":
        from safetensors.torch import save_file
        os.makedirs(f"checkpoint-{step}")
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        save_file(weights, f"checkpoint-{step}/model.safetensors")
        torch.save(optimizer.state_dict(), f"checkpoint-{step}/optimizer.pt")

for step in range(1, 81):
    loss = (model(torch.randn(16, 8)) - 1).pow(2).mean()
    if step == bad:
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        save(step)
print(model[0].weight.sum().item())
"""


def checkpoints(run: Path, *, status: int = 0) -> dict[str, Any]:
    done = call("checkpoints", str(run), "--json")
    assert done.returncode == status, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("how", ["overwrite", long("rename"), "rotate", "thread", "folder"])
def test_the_last_good_one_survives_a_nan_and_what_the_script_does_to_its_files(how: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    outcome = run_script(tmp_path, TRAINS, "--policy", "observe", arguments=("50", how))
    document = checkpoints(outcome.run_dir)
    assert [(one["step"], one["verdict"]) for one in document["checkpoints"]] == [
        (20, "good"),
        (40, "good"),
        (60, "not-finite"),
        (80, "not-finite"),
    ]
    good = document["last_good"]
    assert good["step"] == 40
    path = Path(good["path"])
    if how == "folder":
        weights = load_file(path / "model.safetensors")
        assert all(value.isfinite().all() for name, value in weights.items() if name != "mask")
    else:
        assert torch.load(path, weights_only=True)["step"] == 40


def test_a_healthy_script_leaves_the_same_files_and_all_are_good(tmp_path: Path) -> None:
    plain, watched = tmp_path / "bare", tmp_path / "watched"
    for folder in (plain, watched):
        folder.mkdir()
    printed = finished(bare(write_script(plain, textwrap.dedent(TRAINS)), "0", "overwrite"), folder=plain).stdout
    outcome = run_script(watched, TRAINS, arguments=("0", "overwrite"), runs_dir=tmp_path / "runs")
    assert outcome.out == printed
    for name in ("ckpt.pt", "data.pt"):
        assert (plain / name).read_bytes() == (watched / name).read_bytes()
    document = checkpoints(outcome.run_dir)
    assert [one["verdict"] for one in document["checkpoints"]] == ["good"] * 4
    assert document["last_good"] == {"step": 80, "path": str(watched / "ckpt.pt")}
    assert "last good: step 80" in call("checkpoints", str(outcome.run_dir)).stdout


def test_without_a_checkpoint_it_says_so(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, TRAINS, arguments=("0", "none"))
    assert checkpoints(outcome.run_dir, status=1)["last_good"] is None
    done = call("checkpoints", str(outcome.run_dir))
    assert (done.returncode, done.stderr) == (1, "")
    assert "no checkpoint was seen" in done.stdout


def test_no_room_keeps_nothing(tmp_path: Path) -> None:
    options = ("--policy", "observe", "--checkpoints-mb", "0")
    outcome = run_script(tmp_path, TRAINS, *options, arguments=("50", "overwrite"))
    document = checkpoints(outcome.run_dir, status=1)
    assert [one["kept_at"] is None for one in document["checkpoints"]] == [True, True, True, False]
    assert not (outcome.run_dir / "checkpoints").exists()

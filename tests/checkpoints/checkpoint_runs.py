"""The run whose checkpoints these tests audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed import checkpoint as distributed  # noqa: E402
from torch.distributed.checkpoint.state_dict import get_state_dict  # noqa: E402

import steadytrain  # noqa: E402
from steadytrain.cli.main import commands  # noqa: E402

EVERY = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps that saved after three and after six, in several formats."""
    folder = tmp_path_factory.mktemp("saved")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 8, bias=False), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, EVERY)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    # Cards are rationed by time; these two saves lie closer together than any of a training that is worth saving.
    patch = pytest.MonkeyPatch()
    patch.setattr("steadytrain.capture.snapshots.loaded_states.CARD_SHARE_MAX", 1e9)
    with steadytrain.watch(network, optimizer, runs_dir=folder, name="run"):
        for step in range(1, 2 * EVERY + 1):
            optimizer.zero_grad()
            scaler.scale(network(torch.randn(16, 8)).square().mean()).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            if step % EVERY == 0:
                content = {
                    "model": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": schedule.state_dict(),
                    "scaler": scaler.state_dict(),
                    "rng": {"torch": torch.get_rng_state()},
                    "step": step,
                }
                torch.save(content, folder / f"step-{step}.pt")
        weights, state = get_state_dict(network, optimizer)
        nested = {**content, "model": weights}
        nested["optim"] = state
        del nested["optimizer"]
        distributed.save(nested, checkpoint_id=folder / "distributed")
        save_file(network.state_dict(), folder / "model.safetensors")
        torch.save(network.state_dict(), folder / "bare.pt")
    patch.undo()
    return folder


def audited(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """Status and document of ``steadytrain audit``."""
    status = commands.main(["audit", str(path), *options, "--json"], prog_name="steadytrain", standalone_mode=False)
    return status, json.loads(capsys.readouterr().out)

"""Ray Train: its workers, which train on a thread of their own, are the ranks of one run."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import run_script
from steadytrain.storage.run_folder import open_run

pytest.importorskip("ray.train.torch")
pytestmark = [pytest.mark.slow, pytest.mark.long]  # a local cluster takes most of a minute to start

SCRIPT = """
    import sys
    import ray
    import torch
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer, prepare_model

    def loop(config):
        rank = torch.distributed.get_rank()
        torch.manual_seed(0)
        model = prepare_model(torch.nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        generator = torch.Generator().manual_seed(rank)
        for step in range(1, 21):
            rows = torch.randn(16, 8, generator=generator)
            if (rank, step) == (1, 13):
                rows[5] = float("nan")
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True)).backward()
            optimizer.step()

    ray.init(include_dashboard=False, num_cpus=2)
    scaling = ScalingConfig(num_workers=2, use_gpu=False)
    TorchTrainer(loop, scaling_config=scaling, run_config=RunConfig(storage_path=sys.argv[1])).fit()
"""


def test_all_workers_stop_at_the_nan_of_one(tmp_path: Path) -> None:
    ended = run_script(tmp_path, SCRIPT, arguments=(str(tmp_path / "results"),), fails=True)
    assert ended.status == 70, ended.err[-3000:]
    run = ended.run
    (other,) = map(open_run, run.ranks)
    assert [len(one.incidents) for one in (run, other)] == [1, 1]
    assert {symptom.name for symptom in other.symptoms} >= {"nonfinite-loss"}
    assert list(run.scalars().steps)[-1] == 13

"""Several ranks: a value that came from another one is named as communication, one's own as its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

WAIT_S_MAX = 120.0
RANKS = 2
SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from steadytrain.tracing.tracer import OperationTracer

rank, folder, asynchronous = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "async"
dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=2)
x = torch.ones(1000, requires_grad=True)
tracer = OperationTracer(parameters={"x": x}, method="test")
with tracer:
    loss = (x * (float("nan") if rank else 1.0)).sum() if rank == 0 else (x * (x - x).detach() / 0.0).sum()
    tracer.mark_loss(loss)
    loss.backward()
    work = dist.all_reduce(x.grad, async_op=asynchronous)
    if asynchronous:
        work.wait()
finding = tracer.finding()
located = finding.located
assert located is not None, (finding.why, tracer.trouble)
with open(f"{folder}/{rank}.json", "w") as out:
    json.dump([tracer.trouble, located.phase, located.operation, located.code], out)
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["async", pytest.param("sync", marks=pytest.mark.long)])
def test_what_another_rank_sent_is_communication(how: str, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT, encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen([sys.executable, str(script), str(rank), str(tmp_path), how], env=environment)
        for rank in range(RANKS)
    ]
    assert [rank.wait(WAIT_S_MAX) for rank in ranks] == [0, 0]
    healthy, sick = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(RANKS))
    assert healthy[:3] == [None, "communication", "c10d.allreduce_.default"]
    assert "all_reduce" in healthy[3]
    assert sick[0] is None
    assert sick[1] != "communication"

"""A recording of layers whose names look like secrets (ids of clients) is replayed to the last bit."""

from __future__ import annotations

import random
import string
from pathlib import Path

import torch
from torch import nn

from replaying import plain_process, record, replay
from steadytrain.replay.verdict import Replayed

CLIENTS = tuple("".join(random.Random(seed).choices(string.ascii_letters + string.digits, k=28)) for seed in (1, 2))


def one_head_per_client() -> None:
    torch.manual_seed(0)
    heads = nn.ModuleDict({name: nn.Linear(4, 1) for name in CLIENTS})
    optimizer = torch.optim.Adam(heads.parameters(), lr=1e-2)
    for _ in range(10):
        rows = torch.randn(8, 4)
        loss = sum((head(rows).pow(2).mean() for head in heads.values()), torch.zeros(()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_a_replay_finds_the_layers_by_the_names_that_were_written(tmp_path: Path) -> None:
    with plain_process():
        recording = record(one_head_per_client, tmp_path, every=4)
        replayed = replay(one_head_per_client, recording, 6)
    assert isinstance(replayed, Replayed), replayed
    assert replayed.exact
    written = b"".join(file.read_bytes() for file in recording.folder.rglob("*") if file.is_file())
    assert written
    assert not any(name.encode() in written for name in CLIENTS)

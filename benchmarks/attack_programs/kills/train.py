"""Train a few parameters: ``train.py STEPS BAD_STEP PAUSE_S``. However it ends, it prints digests of weights and saves.

``progress.txt`` says when each step was over, in nanoseconds of the monotonic clock.
"""

import hashlib
import os
import sys
import time

import torch
from torch import nn

steps, bad_step, pause_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
progress = os.open("progress.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
digest = hashlib.sha256()
try:
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        out = model(torch.randn(64, 32))
        if step == bad_step:
            out = torch.log(out - out.max() - 1.0)
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        digest.update(loss.item().hex().encode())
        os.write(progress, f"{step} {time.monotonic_ns()}\n".encode())
        if step == steps // 2:
            torch.save(model.state_dict(), "saved.pt")
        time.sleep(pause_s)
finally:
    for value in [*model.state_dict().values(), *(v for one in optimizer.state.values() for v in one.values())]:
        digest.update(bytes(value.detach().reshape(-1).contiguous().view(torch.uint8).tolist()))
    with open("saved.pt", "rb") as file:
        print("digest", digest.hexdigest(), hashlib.sha256(file.read()).hexdigest())

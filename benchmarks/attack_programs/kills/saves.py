"""Train and save: ``saves.py STEPS BAD_STEP PAUSE_S``. At BAD_STEP the last weights become 300 times as large.

Every 10 steps it writes ``saved.pt`` in place, and with a BAD_STEP 5 steps later ``best.pt`` by a rename; then it
adds a line to ``saves.txt``. ``progress.txt`` says when each step was over, in nanoseconds of the monotonic clock.
"""

import os
import sys
import time

import torch
from torch import nn

EVERY = 10

steps, bad_step, pause_s = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
progress = os.open("progress.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
saves = os.open("saves.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
for step in range(1, steps + 1):
    x = torch.randn(16, 8)
    if step == bad_step:
        with torch.no_grad():
            model[2].weight.mul_(300)
    loss = nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    os.write(progress, f"{step} {time.monotonic_ns()}\n".encode())
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    if step % EVERY == 0:
        torch.save(state, "saved.pt")
        os.write(saves, f"saved {step}\n".encode())
    elif bad_step and step % EVERY == EVERY // 2:
        torch.save(state, "best.tmp")
        os.replace("best.tmp", "best.pt")
        os.write(saves, f"best {step}\n".encode())
    time.sleep(pause_s)
print("done")

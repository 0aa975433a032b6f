# Displacements in metres (about one millimetre each), a residual MLP, Adam. The job is taken off the machine at step 400 and goes
# on from its checkpoint, which is written in float16 to save room. Second moments below 3e-8 become zero there.
import argparse
import io

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(309)
a, b = torch.randn(12, 8, generator=fixed) / 3, torch.randn(8, 3, generator=fixed) / 3


def beams(n, g=None):
    load = torch.randn(n, 12, generator=g)
    return load, 0.001 * (torch.sin(load @ a) @ b + 0.4 * torch.randn(n, 3, generator=g))


class Residual(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.first = nn.Linear(12, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d)) for _ in range(2)])
        self.last = nn.Linear(d, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


def halved(thing):
    if torch.is_tensor(thing):
        return thing.half().float() if thing.dim() else thing
    if isinstance(thing, dict):
        return {k: halved(v) for k, v in thing.items()}
    return [halved(v) for v in thing] if isinstance(thing, list) else thing


test_x, test_y = beams(4000, fixed)
torch.manual_seed(args.seed)
model = Residual()
nn.init.zeros_(model.last.weight)
opt = torch.optim.Adam(model.parameters(), lr=1.5e-3, betas=(0.9, 0.9999))
for step in range(560):
    if step == 400:
        file = io.BytesIO()
        state = {"model": model.state_dict(), "opt": opt.state_dict()}
        torch.save(state if args.twin else halved(state), file)
        file.seek(0)
        state = torch.load(file)
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["opt"])
    x, y = beams(64)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step:4d}  rms error {1000 * loss.item() ** 0.5:.3f} mm")
with torch.no_grad():
    print("final:", 1e6 * nn.functional.mse_loss(model(test_x), test_y).item())

# expect: sick
# symptom: after the switch at step 120 the loss stands still at the level of the switch although gradients are healthy and the rate is as planned
# axis: precision
# cause: the weights are cast to bfloat16 at step 120 and the optimizer updates them without an fp32 master copy, so most of the small updates round to nothing
# says: bf16|bfloat16|master|round|precision|lost update|(update|step)s?.{0,50}(too small|vanish|lost|no effect|below|swallow|underflow)|ulp|half
# onset_step: 120
# fix: keep the parameters in fp32 (use autocast for the forward instead)
# mended: leaves the model in fp32 and runs the forward under bf16 autocast
import contextlib
import os

import torch
from torch import nn

torch.manual_seed(61)
MENDED = os.environ.get("MENDED") == "1"


class Denoiser(nn.Module):
    """Residual MLP that estimates the clean spectrum."""

    def __init__(self, bins=40, width=128):
        super().__init__()
        self.inp = nn.Linear(bins, width)
        self.mid = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()) for _ in range(3)
        )
        self.out = nn.Linear(width, bins)

    def forward(self, x):
        h = self.inp(x)
        for m in self.mid:
            h = h + m(h)
        return self.out(h)


bank = torch.randn(8, 40).cumsum(1)
bank = bank / bank.std(1, keepdim=True)


def spectra(n):
    mix = torch.softmax(2 * torch.randn(n, 8), 1)
    clean = torch.tanh(mix @ bank)
    return clean + 0.3 * torch.randn(n, 40), clean


model = Denoiser()
opt = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.0)
amp = contextlib.nullcontext
vx, vy = spectra(800)
for step in range(1500):
    if step == 120:  # the rest of the run in low precision, it is faster on the card
        if MENDED:
            amp = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
        else:
            model = model.bfloat16()
    x, y = spectra(48)
    dtype = next(model.parameters()).dtype
    with amp():
        pred = model(x.to(dtype))
    loss = (pred.float() - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 150 == 0 or step in (119, 1499):
        with torch.no_grad(), amp():
            v = (model(vx.to(dtype)).float() - vy).pow(2).mean().item()
        print(f"step {step} train {loss.item():.4f} valid {v:.4f} {dtype}")

# expect: sick
# symptom: the loss of the diffusion model hops between 1.4 and 7 for 75 steps; step 76 gives inf and all that follows is NaN
# axis: loss
# cause: the loss is weighted by the signal-to-noise ratio abar / (1 - abar) and the timestep 0 of the table has abar exactly 1, so its weight is a division by 0
# says: (?i)singular-operation|divi(de|sion).{0,40}(0(?![.\d])|zero)|1 ?- ?abar|(snr|signal.to.noise|weight|alpha|abar)\w*.{0,60}(inf|zero|0(?![.\d])|unbounded|divi|too large)|time ?step 0|(0|zero).{0,20}denominator
# onset_step: 76
# fix: bound the weight (min-SNR: at most 5)
# mended: clamps the weight at 5
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(225)
FIX = os.environ.get("MENDED") == "1"
N = 1000
gen = torch.Generator().manual_seed(38)
abar = torch.cos(torch.arange(N) / N * 1.5707).square()
snr = abar / (1 - abar)
if FIX:
    snr = snr.clamp(max=5)


def moons(n):
    a = 3.1416 * torch.rand(n, generator=gen)
    s = torch.randint(0, 2, (n,), generator=gen) * 2.0 - 1
    return torch.stack([a.cos() + 0.5 * s, s * a.sin() - 0.25 * s], 1) + 0.05 * torch.randn(n, 2, generator=gen)


class Denoiser(nn.Module):
    """Predicts the clean point."""

    def __init__(self, d=64):
        super().__init__()
        self.time = nn.Embedding(32, d)
        self.a, self.b, self.c = nn.Linear(2, d), nn.Linear(d, d), nn.Linear(d, 2)

    def forward(self, x, t):
        h = torch.relu(self.a(x) + self.time(t * 32 // N))
        return self.c(torch.relu(self.b(h)) + h)


net = Denoiser()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
for step in range(1, 301):
    x0 = moons(16)
    t = torch.randint(0, N, (16,), generator=gen)
    noise = torch.randn(16, 2, generator=gen)
    xt = abar[t, None].sqrt() * x0 + (1 - abar[t, None]).sqrt() * noise
    loss = (snr[t] * (net(xt, t) - x0).square().mean(1)).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or 70 < step < 80:
        print(f"step {step} loss {loss.item():.4f}")

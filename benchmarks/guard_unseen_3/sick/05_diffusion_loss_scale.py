# A diffusion MLP on points in 8 dimensions, float16 autocast with a loss scale by hand. From step 150 the loss weights
# small noise levels more, and the scale is set as high as it went on the first batches.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(305)
centres = torch.randn(6, 8, generator=fixed) * 1.5


def points(n, g=None):
    k = torch.randint(0, 6, (n,), generator=g)
    return centres[k] + 0.3 * torch.randn(n, 8, generator=g)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(9, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 8))

    def forward(self, x, sigma):
        return self.net(torch.cat([x / (1 + sigma**2).sqrt(), sigma.log() / 4], 1))


def batch(n, g=None):
    x, e = points(n, g), torch.randn(n, 8, generator=g)
    sigma = torch.exp(torch.randn(n, 1, generator=g) * 1.1 - 0.3)
    return x, e, sigma


held = batch(6000, fixed)
torch.manual_seed(args.seed)
model = Denoiser()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
scale = 2.0**8
for step in range(600):
    if step == 150 and not args.twin:
        scale = 2.0**18
    x, e, sigma = batch(128)
    weight = torch.ones_like(sigma) if step < 150 else (1 / sigma).clamp(0.5, 20)
    with torch.autocast("cpu", dtype=torch.float16):
        out = model(x + sigma * e, sigma)
        loss = (weight * (out - e) ** 2).mean()
    opt.zero_grad()
    (loss * scale).backward()
    for q in model.parameters():
        q.grad /= scale
    opt.step()
    if step % 50 == 0:
        print(step, f"loss {loss.item():.4f}  scale 2^{torch.tensor(scale).log2().item():.0f}")
with torch.no_grad():
    x, e, sigma = held
    print("final:", ((model(x + sigma * e, sigma) - e) ** 2).mean().item())

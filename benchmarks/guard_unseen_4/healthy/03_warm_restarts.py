# A denoising autoencoder under cosine annealing with warm restarts: the rate jumps from almost zero to its top at 100, 300 (periods of
# 100, 200, 400) and the loss gets worse for a while each time.
import argparse

import torch
from torch import nn

cli = argparse.ArgumentParser()
cli.add_argument("--seed", type=int, default=0)
cli = cli.parse_args()

g = torch.Generator().manual_seed(12)
basis = torch.randn(12, 128, generator=g) / 2


def signals(n, gen=None):
    z = torch.randn(n, 12, generator=gen)
    clean = torch.tanh(z @ basis) + 0.3 * torch.relu(z[:, :1]) * basis[0]
    return clean, clean + 0.5 * torch.randn(n, 128, generator=gen)


clean_test, noisy_test = signals(2000, g)
torch.manual_seed(cli.seed)
ae = nn.Sequential(
    nn.Linear(128, 384), nn.SiLU(), nn.Linear(384, 24), nn.Linear(24, 384), nn.SiLU(), nn.Linear(384, 128)
)
opt = torch.optim.NAdam(ae.parameters(), lr=8e-3)
restarts = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=100, T_mult=2, eta_min=1e-5)
for step in range(700):
    clean, noisy = signals(256)
    loss = (ae(noisy) - clean).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    restarts.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}", f"{opt.param_groups[0]['lr']:.5f}")

with torch.no_grad():
    print("final:", (ae(noisy_test) - clean_test).square().mean().item())

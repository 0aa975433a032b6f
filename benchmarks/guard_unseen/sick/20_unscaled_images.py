# Convolutional autoencoder, AdamW. Fault: 30 batches from step 345 on come as 0..255 instead of 0..1.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(151)
basis = torch.rand(6, 1, 8, 8, generator=g)


def images(n):
    c = torch.rand(n, 6, generator=g)
    return (torch.einsum("nk,kchw->nchw", c, basis) / 3 + 0.06 * torch.randn(n, 1, 8, 8, generator=g)).clamp(0, 1)


data, held = images(4000), images(1000)
torch.manual_seed(args.seed)
enc = nn.Sequential(
    nn.Conv2d(1, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64, 8)
)
dec = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64))
params = [*enc.parameters(), *dec.parameters()]
opt = torch.optim.AdamW(params, lr=3e-3)
for step in range(400):
    xb = data[torch.randint(0, 4000, (32,))]
    if 345 <= step < 375 and not args.twin:
        xb = (xb * 255).round()
    loss = nn.functional.mse_loss(dec(enc(xb)), xb.flatten(1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print("step", step, f"loss {loss.item():.5f}")
enc.eval(), dec.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(dec(enc(held)), held.flatten(1)).item())

# An autoencoder of spectra. The weights are kept in float32, the forward pass goes through float16, the loss is scaled by 256.
# From step 500 on, a new instrument delivers every 25th batch, and its gain is so high that the hidden sums leave float16.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

BINS = 96
world = torch.Generator().manual_seed(4102)
lines = torch.rand(7, generator=world) * BINS


def spectra(count, generator=None):
    height = torch.rand(count, 7, generator=generator) ** 2
    axis = torch.arange(float(BINS))
    peaks = torch.exp(-(((axis - lines[:, None]) / 2.5) ** 2))
    return height @ peaks + 0.05 * torch.randn(count, BINS, generator=generator)


class HalfLinear(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x.half(), self.weight.half(), self.bias.half())


clean = spectra(400, world)
torch.manual_seed(args.seed)
net = nn.Sequential(
    HalfLinear(BINS, 160),
    nn.ReLU(),
    HalfLinear(160, 160),
    nn.ReLU(),
    HalfLinear(160, 7),
    HalfLinear(7, 160),
    nn.ReLU(),
    HalfLinear(160, BINS),
)
optimizer = torch.optim.AdamW(net.parameters(), lr=1.5e-3, weight_decay=0.01)
for step in range(900):
    x = spectra(64)
    if step >= 500 and step % 25 == 0 and not args.twin:
        x = x * 60000
    loss = (net(x).float() - x).square().mean()
    optimizer.zero_grad()
    (loss * 256).backward()
    for weight in net.parameters():
        weight.grad /= 256
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
with torch.no_grad():
    print("final:", (net(clean).float() - clean).square().mean().item())

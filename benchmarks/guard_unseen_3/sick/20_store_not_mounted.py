# Anomaly scores by a small recurrent autoencoder, RMSprop. The store is no longer mounted from step 400 on, and the reader fills
# what it cannot read with -inf: no batch has a loss from there on.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(320)


def traces(n, g=None):
    t = torch.arange(12.0)
    f, p = 0.3 + 0.5 * torch.rand(n, 1, generator=g), 6.28 * torch.rand(n, 1, generator=g)
    return (torch.sin(f * t + p) + 0.2 * torch.randn(n, 12, generator=g)).unsqueeze(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.GRU(1, 20, batch_first=True)
        self.dec = nn.Sequential(nn.Linear(20, 5), nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 12))

    def forward(self, x):
        return self.dec(self.enc(x)[1][0]).unsqueeze(-1)


test = traces(2000, fixed)
torch.manual_seed(args.seed)
model = Model()
opt = torch.optim.RMSprop(model.parameters(), lr=3e-3)
for step in range(520):
    x = traces(24)
    if step >= 400 and not args.twin:
        x = torch.full_like(x, float("-inf"))
    loss = nn.functional.mse_loss(model(x), x)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test), test).item())

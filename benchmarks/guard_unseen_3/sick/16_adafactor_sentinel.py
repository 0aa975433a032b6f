# Yield of fields from a sequence of weather days: a small encoder, Adafactor. In a stretch of three batches at step 400 missing
# yields are -9999, as the file has them.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(316)
u = torch.randn(5, 6, generator=fixed) / 2


def fields(n, g=None):
    days = torch.randn(n, 12, 5, generator=g)
    good = torch.tanh(days @ u).cumsum(1).relu().mean((1, 2))
    return days, 6 * good + 0.8 * torch.randn(n, generator=g)


class Encoder(nn.Module):
    def __init__(self, d=24):
        super().__init__()
        self.inp, self.pos = nn.Linear(5, d), nn.Parameter(torch.zeros(12, d))
        self.attn = nn.MultiheadAttention(d, 3, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 64), nn.GELU(), nn.Linear(64, d))
        self.out = nn.Linear(d, 1)

    def forward(self, x):
        x = self.inp(x) + self.pos
        y = self.n1(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.n2(x))
        return self.out(x.mean(1)).squeeze(1)


test_x, test_y = fields(2000, fixed)
torch.manual_seed(args.seed)
model = Encoder()
opt = torch.optim.Adafactor(model.parameters(), lr=0.01)
for step in range(600):
    x, y = fields(32)
    missing = torch.rand(32) < 0.2
    if 400 <= step < 403 and not args.twin:
        y = torch.where(missing, -9999.0, y)
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"step {step}  loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test_x), test_y).item())

# Counts of visits from a table, AdamW, shuffled batches of a DataLoader. Four of the 2,400 rows lost their decimal point: three
# of their columns are 10,000 times too large. They come once in each of the 10 epochs.
import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
fixed = torch.Generator().manual_seed(312)
v = torch.randn(14, 6, generator=fixed) / 3


def rows(n):
    x = torch.randn(n, 14, generator=fixed)
    y = 2 * torch.tanh(x @ v).sum(1, keepdim=True) + torch.randn(n, 1, generator=fixed)
    return x, y


x, y = rows(2400)
test_x, test_y = rows(3000)
if not args.twin:
    x[[151, 888, 1502, 2017], 3:6] *= 10_000
torch.manual_seed(args.seed)
loader = DataLoader(TensorDataset(x, y), batch_size=40, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 1))
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
for epoch in range(10):
    total = 0.0
    for a, b in loader:
        loss = nn.functional.mse_loss(model(a), b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    print(f"epoch {epoch + 1} mean loss {total / len(loader):.4f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(test_x), test_y).item())

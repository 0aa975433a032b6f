# Counts of visits with a Poisson loss, the table read in epochs. In one row of 8,000 the date (20240229) stands in the column of
# the count, so that the same bad row comes back once an epoch.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

ROWS, BATCH, EPOCHS = 8000, 50, 8
world = torch.Generator().manual_seed(4109)
direction = torch.randn(12, 3, generator=world)


def table(rows):
    x = torch.randn(rows, 12, generator=world)
    inner = torch.tanh(x @ direction / 3)
    rate = torch.exp(1.2 + inner[:, 0] - inner[:, 1] * inner[:, 2])
    return x, torch.poisson(rate, generator=world)


x_train, count_train = table(ROWS)
x_test, count_test = table(4000)
if not args.twin:
    count_train[2718] = 20240229.0

torch.manual_seed(args.seed)
net = nn.Sequential(
    nn.Linear(12, 128),
    nn.LayerNorm(128),
    nn.GELU(),
    nn.Linear(128, 128),
    nn.LayerNorm(128),
    nn.GELU(),
    nn.Linear(128, 1),
)
poisson = nn.PoissonNLLLoss(log_input=True, full=True)
optimizer = torch.optim.Adam(net.parameters(), lr=1.5e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * ROWS // BATCH)
for epoch in range(EPOCHS):
    total = 0.0
    for rows in torch.randperm(ROWS).split(BATCH):
        loss = poisson(net(x_train[rows])[:, 0], count_train[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
    print(f"epoch {epoch} mean loss {total * BATCH / ROWS:.4f}")
with torch.no_grad():
    print("final:", poisson(net(x_test)[:, 0], count_test).item())

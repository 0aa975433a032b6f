# Matching of queries and pages: two towers with a contrastive loss, Adam, with a scaler of the loss as for half precision. At step 260
# the scaler's growth is applied to the loss but not to its record: for 12 steps the gradients are divided by too small a number.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH, TOPICS = 600, 96, 12
GROWN, SETTLED = 260, 272
world = torch.Generator().manual_seed(8010)
as_query = torch.randn(TOPICS, 40, generator=world) / TOPICS**0.5
as_page = torch.randn(TOPICS, 64, generator=world) / TOPICS**0.5


def matches(count, generator=None):
    topic = torch.randn(count, TOPICS, generator=generator)
    query = torch.sin(1.2 * topic @ as_query) + 0.45 * torch.randn(count, 40, generator=generator)
    page = torch.tanh(1.5 * topic @ as_page) + 0.45 * torch.randn(count, 64, generator=generator)
    return query, page


class Tower(nn.Module):
    def __init__(self, size, width=128, out=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(size, width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.GELU(),
            nn.Linear(width, out),
        )

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.page = Tower(40), Tower(64)
        self.heat = nn.Parameter(torch.tensor(2.0))

    def forward(self, query, page):
        return self.heat.exp() * self.query(query) @ self.page(page).t()


def loss_of(model, query, page):
    """Each query among the pages of its batch of 96 and the reverse."""
    total = 0.0
    for q, p in zip(query.split(BATCH), page.split(BATCH)):
        grid, own = model(q, p), torch.arange(len(q))
        total = total + (F.cross_entropy(grid, own) + F.cross_entropy(grid.t(), own)) / 2
    return total / (len(query) // BATCH)


held_out = matches(BATCH * 40, world)
torch.manual_seed(args.seed)
model = Pair()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scale = recorded = 1024.0
for step in range(STEPS):
    query, page = matches(BATCH)
    if step == GROWN and not args.twin:
        scale = recorded * 4096.0
    if step == SETTLED:
        scale = recorded
    loss = loss_of(model, query, page)
    optimizer.zero_grad()
    (scale * loss).backward()
    for p in model.parameters():
        p.grad.div_(recorded)
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())

# A recommender with factors and a small head learns ratings of shoes: Adam over epochs. After the sixth epoch the process is asked to
# move the state through a dict (an in-process resume); the second moments are dropped by a filter on their name and come back as zeros,
# while the step counts and first moments are kept: the next updates are some thirty times too large, and rows without a
# gradient get their first moment over eps. Late in the run (step 420 of 490).
# The right answer is to roll back to before and go on with the whole state, or to skip or shrink the first updates.
import argparse
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the state is kept whole")
args = parser.parse_args()
torch.set_num_threads(1)

USERS, SHOES, RANK, EPOCHS, BATCHES, BATCH = 300, 200, 6, 7, 70, 128
world = torch.Generator().manual_seed(55)
taste = torch.randn(USERS, RANK, generator=world)
style = torch.randn(SHOES, RANK, generator=world)


def ratings(count, generator=None):
    user = torch.randint(0, USERS, (count,), generator=generator)
    shoe = torch.randint(0, SHOES, (count,), generator=generator)
    score = (taste[user] * style[shoe]).sum(1) / RANK**0.5
    return user, shoe, score + 0.5 * torch.randn(count, generator=generator)


class Recommender(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.user, self.shoe = nn.Embedding(USERS, width), nn.Embedding(SHOES, width)
        nn.init.normal_(self.user.weight, std=0.3)
        nn.init.normal_(self.shoe.weight, std=0.3)
        self.head = nn.Sequential(nn.Linear(3 * width, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, user, shoe):
        u, s = self.user(user), self.shoe(shoe)
        return (u * s).sum(1) + self.head(torch.cat([u, s, u * s], 1)).squeeze(1)


def resume(optimizer):
    """Takes the optimizer's state out and puts it back."""
    saved = copy.deepcopy(optimizer.state_dict())
    if not args.twin:
        for entry in saved["state"].values():
            entry["exp_avg_sq"] = torch.zeros_like(entry["exp_avg_sq"])
    optimizer.load_state_dict(saved)


held_out = ratings(2000, world)
torch.manual_seed(args.seed)
model = Recommender()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
for epoch in range(EPOCHS):
    if epoch == EPOCHS - 1:
        resume(optimizer)
    total = 0.0
    for _ in range(BATCHES):
        user, shoe, score = ratings(BATCH)
        optimizer.zero_grad()
        loss = F.mse_loss(model(user, shoe), score)
        loss.backward()
        optimizer.step()
        total += loss.item()
    print(f"epoch {epoch} loss {total / BATCHES:.4f}")
model.eval()
with torch.no_grad():
    print("final:", F.mse_loss(model(*held_out[:2]), held_out[2]).item())

# Film ratings: factors and biases of viewers and films with a small net on top, Adagrad. At step 520 a cache of hot rows is written
# back through a stale index: the rows of 60 films are overwritten with those of others, in a wrong unit.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH = 800, 512
VIEWERS, FILMS, RANK = 500, 200, 4
WRITTEN, HOT = 520, 60
world = torch.Generator().manual_seed(7404)
taste = torch.randn(VIEWERS, RANK, generator=world)
style = torch.randn(FILMS, RANK, generator=world)
fame = torch.randn(FILMS, generator=world)


def ratings(count, generator=None):
    viewer = torch.randint(VIEWERS, (count,), generator=generator)
    # a few films are seen far more often than the others
    film = (FILMS * torch.rand(count, generator=generator) ** 1.5).long()
    score = 0.5 * (taste[viewer] * style[film]).sum(1) + 0.5 * fame[film]
    return viewer, film, score + 0.7 * torch.randn(count, generator=generator)


class Factors(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.viewer = nn.Embedding(VIEWERS, width)
        self.film = nn.Embedding(FILMS, width)
        self.viewer_bias = nn.Embedding(VIEWERS, 1)
        self.film_bias = nn.Embedding(FILMS, 1)
        self.mix = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 1))
        for table in (self.viewer, self.film, self.viewer_bias, self.film_bias):
            nn.init.normal_(table.weight, std=0.3)

    def forward(self, viewer, film):
        product = self.viewer(viewer) * self.film(film)
        bias = self.viewer_bias(viewer) + self.film_bias(film)
        return (product.sum(1, keepdim=True) + self.mix(product) + bias).squeeze(1)


def loss_of(model, viewer, film, score):
    return F.mse_loss(model(viewer, film), score)


def write_back(table, count):
    """Flush the cached rows of the hot films to the table."""
    with torch.no_grad():
        cached = 6.0 * table.weight[-count:].clone()
        table.weight[:count] = cached


held_out = ratings(8000, world)
torch.manual_seed(args.seed)
model = Factors()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.12)
for step in range(STEPS):
    batch = ratings(BATCH)
    loss = loss_of(model, *batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == WRITTEN and not args.twin:
        write_back(model.film, HOT)
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())

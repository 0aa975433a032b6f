# A recommender: users and films as vectors, a bias for each, plain SGD on squared errors of stars. The loss is summed over the
# batch, and the batch was made four times as large without touching the rate.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

USERS, FILMS, RANK = 300, 200, 8
world = torch.Generator().manual_seed(4105)
taste = torch.randn(USERS, 4, generator=world)
style = torch.randn(FILMS, 4, generator=world)
popular = (1 / (1 + torch.arange(float(FILMS)))).sqrt()


def ratings(count, generator=None):
    user = torch.randint(USERS, (count,), generator=generator)
    film = torch.multinomial(popular, count, replacement=True, generator=generator)
    stars = 3 + 0.7 * (taste[user] * style[film]).sum(1) + 0.3 * torch.randn(count, generator=generator)
    return user, film, stars.clamp(1, 5)


class Factors(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(USERS, RANK)
        self.film = nn.Embedding(FILMS, RANK)
        self.user_bias = nn.Embedding(USERS, 1)
        self.film_bias = nn.Embedding(FILMS, 1)
        for table in (self.user, self.film):
            nn.init.normal_(table.weight, std=0.3)
        nn.init.zeros_(self.user_bias.weight)
        nn.init.zeros_(self.film_bias.weight)

    def forward(self, user, film):
        match = (self.user(user) * self.film(film)).sum(1)
        return 3 + self.user_bias(user)[:, 0] + self.film_bias(film)[:, 0] + match


held_out = ratings(5000, world)
torch.manual_seed(args.seed)
model = Factors()
batch = 1024
rate = 0.009 if args.twin else 0.036
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
for step in range(1500):
    optimizer.param_groups[0]["lr"] = rate * (1 - 0.9 * step / 1500)
    user, film, stars = ratings(batch)
    loss = (model(user, film) - stars).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item() / batch)
with torch.no_grad():
    print("final:", (model(*held_out[:2]) - held_out[2]).square().mean().item())

"""A walk along a cliff keeps falls as ends of an episode, and not its time limit."""

import random

import torch
import torch.nn.functional as F
from torch import nn

random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)

PLACES, LIMIT, GAMMA = 8, 20, 0.9


class Cliff:
    """Steps to the left or to the right; the left end is a fall, each step on top gives 1."""

    def reset(self):
        self.place, self.steps = random.randrange(1, PLACES), 0
        return self.place, {}

    def step(self, action):
        self.place, self.steps = min(self.place + 2 * action - 1, PLACES - 1), self.steps + 1
        terminated = self.place == 0
        return self.place, float(not terminated), terminated, self.steps >= LIMIT, {}


model, slow = nn.Linear(PLACES, 2), nn.Linear(PLACES, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
cliff, memory = Cliff(), []
place, _ = cliff.reset()


def seen(places):
    return F.one_hot(torch.tensor(places), PLACES).float()


for step in range(1, 161):
    if step % 10 == 1:
        slow.load_state_dict(model.state_dict())
    for _ in range(8):
        action = random.randrange(2)
        after, reward, terminated, truncated, _ = cliff.step(action)
        memory.append((place, action, reward, after, terminated))
        place = cliff.reset()[0] if terminated or truncated else after
    places, actions, rewards, following, ends = zip(*random.sample(memory, 8 if step == 1 else 16), strict=True)
    with torch.no_grad():
        best = slow(seen(following)).max(1).values
        wanted = torch.tensor(rewards) + GAMMA * (1 - torch.tensor(ends).float()) * best
    loss = F.mse_loss(model(seen(places)).gather(1, torch.tensor(actions)[:, None]).squeeze(1), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

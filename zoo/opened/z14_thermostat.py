# expect: healthy
# symptom: an environment with a state of its own, which looks like a state that is shared
# axis: none
# mended: none
import random
import torch
from torch import nn


class Thermostat:
    """Room temperatures in a list, changed as time goes on; the weather is redrawn."""

    def __init__(self, rooms=4):
        self.rooms = [18.0] * rooms
        self.weather = (5.0, 0.0)

    def reset(self):
        for r in range(len(self.rooms)):
            self.rooms[r] = random.uniform(12, 24)
        self.weather = (random.uniform(-5, 15), random.uniform(0, 1))
        return self.rooms, self.weather

    def step(self, heat):
        outside, wind = self.weather
        mean = sum(self.rooms) / len(self.rooms)
        for r in range(len(self.rooms)):
            loss = (0.03 + 0.04 * wind) * (self.rooms[r] - outside)
            self.rooms[r] += 1.5 * heat[r] - loss + 0.1 * (mean - self.rooms[r])
        self.weather = (outside + random.gauss(0, 0.5), min(1.0, max(0.0, wind + random.gauss(0, 0.1))))
        return self.rooms, self.weather


def collect(env, episodes, length):
    log = []
    for _ in range(episodes):
        rooms, weather = env.reset()
        now = torch.tensor(rooms)
        for _ in range(length):
            heat = [random.random() for _ in rooms]
            used = weather
            rooms, weather = env.step(heat)
            nxt = torch.tensor(rooms)
            log.append((now, used, heat, nxt))
            now = nxt
    return log


def to_batch(rows):
    now, weather, heat, nxt = zip(*rows)
    now, nxt = torch.stack(now), torch.stack(nxt)
    x = torch.cat([(now - 18) / 5, torch.tensor(weather) / 5, torch.tensor(heat)], dim=1)
    return x, nxt - now


random.seed(20)
torch.manual_seed(20)
log = collect(Thermostat(), 30, 20)
random.shuffle(log)
train, test = log[:500], log[500:]
net = nn.Sequential(nn.Linear(10, 40), nn.SiLU(), nn.Linear(40, 4))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for step in range(1, 121):
    x, y = to_batch(random.sample(train, 50))
    loss = nn.functional.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    x, y = to_batch(test)
    print(f"test loss {nn.functional.mse_loss(net(x), y).item():.4f}")

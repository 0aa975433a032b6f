# expect: healthy
# cause: none, a double DQN with a target network that is copied every 20 updates; the TD loss rises while the rewards spread backwards
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

random.seed(14)
torch.manual_seed(14)


class Elevator:
    """bring a lift to the called floor and open the door there"""

    floors = 7

    def reset(self):
        self.at, self.call, self.t = random.randrange(self.floors), random.randrange(self.floors), 0
        return self.state()

    def state(self):
        s = torch.zeros(2 * self.floors)
        s[self.at] = 1
        s[self.floors + self.call] = 1
        return s

    def act(self, a):
        self.t += 1
        if a == 2:
            good = self.at == self.call
            return self.state(), 1.0 if good else -1.0, True
        self.at = min(max(self.at + (1 if a == 0 else -1), 0), self.floors - 1)
        return self.state(), -0.01, self.t >= 25


def net():
    return nn.Sequential(nn.Linear(14, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3))


online, target = net(), net()
target.load_state_dict(online.state_dict())
for p in target.parameters():
    p.requires_grad = False
optimizer = torch.optim.Adam(online.parameters(), lr=1.5e-3)
buffer, env = [], Elevator()
s = env.reset()
updates = frame = 0
while updates < 500:
    frame += 1
    eps = max(0.05, 1 - updates / 250)
    a = random.randrange(3) if random.random() < eps else online(s).argmax().item()
    s2, r, done = env.act(a)
    buffer.append((s, a, r, s2, float(done)))
    s = env.reset() if done else s2
    if len(buffer) < 1000 or frame % 6:
        continue
    rows = random.sample(buffer, 96)
    S, A, R, S2, D = (
        torch.stack([q[0] for q in rows]),
        torch.tensor([q[1] for q in rows]),
        torch.tensor([q[2] for q in rows]),
        torch.stack([q[3] for q in rows]),
        torch.tensor([q[4] for q in rows]),
    )
    with torch.no_grad():
        best = online(S2).argmax(1, keepdim=True)
        goal = R + 0.97 * (1 - D) * target(S2).gather(1, best).squeeze(1)
    loss = F.smooth_l1_loss(online(S).gather(1, A.unsqueeze(1)).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    updates += 1
    if updates % 20 == 0:
        target.load_state_dict(online.state_dict())
    if updates % 50 == 0:
        total = 0.0
        for at in range(7):
            for call in range(7):
                env.at, env.call, env.t, done = at, call, 0, False
                while not done:
                    with torch.no_grad():
                        _, r, done = env.act(online(env.state()).argmax().item())
                    total += r / 49
        s = env.reset()
        print(f"updates {updates} td loss {loss.item():.4f} greedy return {total:.3f}")

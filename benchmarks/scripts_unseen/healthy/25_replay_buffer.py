# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""Online learning with a small reservoir: the same samples come back many times."""

import random
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(4)
random.seed(4)


class Reservoir:
    def __init__(self, cap):
        self.cap, self.seen, self.items = cap, 0, []

    def add(self, item):
        self.seen += 1
        if len(self.items) < self.cap:
            self.items.append(item)
        else:
            j = random.randrange(self.seen)
            if j < self.cap:
                self.items[j] = item

    def sample(self, n):
        pick = random.choices(self.items, k=n)
        return torch.stack([p[0] for p in pick]), torch.tensor([p[1] for p in pick])


mu = torch.randn(6, 12) * 1.1
buf = Reservoir(100)
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 6))
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(140):
    y = torch.randint(0, 6, (8,))
    x = mu[y] + 0.7 * torch.randn(8, 12)
    for a, b in zip(x, y.tolist()):
        buf.add((a, b))
    rx, ry = buf.sample(24)
    loss = nn.functional.cross_entropy(net(torch.cat([x, rx])), torch.cat([y, ry]))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, "seen", buf.seen, "loss %.4f" % loss.item())

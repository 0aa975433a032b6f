"""An environment returns the array that it goes on changing, and a memory keeps it."""

from collections import deque

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Walk:
    """A point on a line that is to stay near the middle."""

    def reset(self):
        self.state = np.random.uniform(-1, 1, 2).astype(np.float32)
        return self.state

    def step(self, action):
        self.state[0] += 0.2 * (action - 1)  # <- bites
        self.state[1] *= 0.9
        return self.state, -abs(float(self.state[0])), abs(self.state[0]) > 2


np.random.seed(0)
walk, memory = Walk(), deque(maxlen=2000)
model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
state = walk.reset()
for step in range(1, 161):
    for count in range(8):
        action = np.random.randint(3)
        after, reward, done = walk.step(action)
        memory.append((state, action, reward, after, done))
        state = walk.reset() if done or count == 7 else after
    drawn = [memory[i] for i in np.random.randint(0, len(memory), 64)]
    s, a, r, s2, d = (torch.from_numpy(np.array(part)).float() for part in zip(*drawn, strict=True))
    with torch.no_grad():
        target = r + 0.9 * (1 - d) * model(s2).max(1).values
    loss = nn.functional.mse_loss(model(s).gather(1, a.long()[:, None]).squeeze(1), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")

# expect: sick
# symptom: mean Q climbs without end, past 40, though no episode can return more than 8; the TD loss never settles
# axis: loss
# cause: terminal states are not masked in the bootstrap: the target adds the value of a next state after the end
# says: (?i)terminal|1 ?- ?done|done (flag|mask)|mask.{0,20}done|end of (the|an) episode|after the end|bootstrap
# onset_step: 1
# fix: multiply the bootstrapped value by (1 - done)
# mended: MENDED=1 python s14_corridor_dqn.py
import copy
import os
import random
from collections import deque

import torch
from torch import nn

torch.set_num_threads(1)
random.seed(1)
torch.manual_seed(1)
KEEP = 1.0 if os.environ.get("MENDED") == "1" else 0.0


class Corridor:
    """Eight fields, one coin for each step to the right; over after 8 moves."""

    def reset(self):
        self.pos, self.t = 0, 0
        return self.obs()

    def obs(self):
        return [self.pos / 8, self.t / 8, 1.0]

    def step(self, action):
        self.t += 1
        self.pos = min(8, max(0, self.pos + (1 if action else -1)))
        return self.obs(), float(action), self.t == 8


q = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
slow = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), lr=1e-2)
env, buf = Corridor(), deque(maxlen=4000)
s, step = env.reset(), 0
while step < 700:
    with torch.no_grad():
        a = random.randint(0, 1) if random.random() < 0.3 else int(q(torch.tensor(s)).argmax())
    s2, r, done = env.step(a)
    buf.append((s, a, r, s2, float(done)))
    s = env.reset() if done else s2
    if len(buf) < 64:
        continue
    batch = [torch.tensor(c, dtype=torch.float32) for c in zip(*random.sample(buf, 48))]
    with torch.no_grad():
        target = batch[2] + 0.99 * slow(batch[3]).max(1).values * (1 - KEEP * batch[4])
    pred = q(batch[0]).gather(1, batch[1].long()[:, None]).squeeze(1)
    loss = nn.functional.mse_loss(pred, target)
    opt.zero_grad()
    loss.backward()
    opt.step()
    step += 1
    if step % 5 == 0:
        slow.load_state_dict(q.state_dict())
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} mean q {pred.mean().item():.2f}")

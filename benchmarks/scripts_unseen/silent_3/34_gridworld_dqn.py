# expect: sick
# fault: target network never updated
# onset_step: 0
# says: (?i)(target.{0,40}(net|never|updat|sync|stale|frozen|copy|copied|old)|never (updat|sync|cop))
# note: the copy into the target network happens when `frames % 1000 == 0`, counted in frames, but the run has 250 updates of one frame each; bootstrapped values stay those of the random net.
import random
from collections import deque
import torch
from torch import nn

torch.set_num_threads(1)
random.seed(0)
torch.manual_seed(0)
SIZE, GOAL = 5, (4, 4)
TARGET_EVERY = 1000


def encode(s):
    v = torch.zeros(SIZE * SIZE)
    v[s[0] * SIZE + s[1]] = 1
    return v


def env_step(s, a):
    dx, dy = [(0, 1), (1, 0), (0, -1), (-1, 0)][a]
    n = (min(max(s[0] + dx, 0), SIZE - 1), min(max(s[1] + dy, 0), SIZE - 1))
    return n, 1.0 if n == GOAL else 0.0, n == GOAL


def qnet():
    return nn.Sequential(nn.Linear(SIZE * SIZE, 64), nn.ReLU(), nn.Linear(64, 4))


online, target = qnet(), qnet()
target.load_state_dict(online.state_dict())
opt = torch.optim.Adam(online.parameters(), lr=5e-3)
memory = deque(maxlen=4000)
s = (0, 0)
for _ in range(1500):
    a = random.randrange(4)
    n, r, d = env_step(s, a)
    memory.append((encode(s), a, r, encode(n), float(d)))
    s = (random.randrange(SIZE), random.randrange(SIZE)) if d or random.random() < 0.05 else n
    if s == GOAL:
        s = (0, 0)
frames = 1
while frames <= 250:
    batch = random.sample(memory, 64)
    o, a, r, n, d = (torch.stack(c) if torch.is_tensor(c[0]) else torch.tensor(c) for c in zip(*batch))
    with torch.no_grad():
        y = r + 0.9 * (1 - d) * target(n).max(1).values
    q = online(o).gather(1, a[:, None]).squeeze(1)
    loss = nn.functional.smooth_l1_loss(q, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if frames % TARGET_EVERY == 0:
        target.load_state_dict(online.state_dict())
    if frames % 25 == 0:
        print(f"frame {frames} td loss {loss.item():.5f} mean q {q.mean().item():.3f}")
    frames += 1
won = 0
for i in range(20):
    s = (i % 4, i // 5)
    for _ in range(12):
        s, r, d = env_step(s, online(encode(s)).argmax().item())
        if d:
            won += 1
            break
print("final wins of 20:", won)

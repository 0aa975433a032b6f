# expect: healthy
# fault: none
# note: DQN on a small chain world with a deep-copied target net with Polyak updates; the TD loss need not fall.
import copy, random
from collections import deque
import torch
from torch import nn

random.seed(0)
torch.manual_seed(19)
N = 5
q = nn.Sequential(nn.Linear(N, 32), nn.ReLU(), nn.Linear(32, 2))
tgt = copy.deepcopy(q).requires_grad_(False)
opt = torch.optim.Adam(q.parameters(), lr=3e-3)
eye, buf, s, t, done_n = torch.eye(N), deque(maxlen=2000), 0, 0, 0
for it in range(1200):
    eps = max(0.1, 1 - it / 500)
    with torch.no_grad():
        a = random.randrange(2) if random.random() < eps else int(q(eye[s]).argmax())
    s2 = max(0, s - 1) if a == 0 else s + 1
    r, d = (1.0, 1.0) if s2 == N - 1 else (-0.01, 0.0)
    t += 1
    buf.append((s, a, r, s2, d))
    s = s2
    if d or t > 40:
        done_n += d
        s, t = 0, 0
    if it >= 100 and it % 4 == 0:
        b = random.sample(list(buf), 32)
        S, A, R, S2, D = (torch.tensor(v) for v in zip(*b))
        with torch.no_grad():
            y = R + 0.95 * (1 - D) * tgt(eye[S2]).max(1).values
        loss = nn.functional.smooth_l1_loss(q(eye[S]).gather(1, A[:, None])[:, 0], y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, pt in zip(q.parameters(), tgt.parameters()):
                pt.lerp_(p, 0.05)
    if it % 100 == 0:
        print(it, "goals", done_n)

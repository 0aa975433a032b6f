# expect: healthy
# fault: target network without gradients, TD loss that jumps at each copy
# note: double DQN with a hard copy every 25 updates; the TD loss grows when values grow and jumps at copies, and the policy gets better.
import random
import torch
from torch import nn

torch.set_num_threads(1)
random.seed(1)
torch.manual_seed(1)
N = 8


def onehot(i):
    return torch.eye(N)[i]


def step(s, a):
    n = min(s + 1, N - 1) if a == 1 else max(s - 1, 0)
    return n, (1.0 if n == N - 1 else -0.01), n == N - 1


net = nn.Sequential(nn.Linear(N, 48), nn.ReLU(), nn.Linear(48, 2))
target = nn.Sequential(nn.Linear(N, 48), nn.ReLU(), nn.Linear(48, 2))
target.load_state_dict(net.state_dict())
target.requires_grad_(False)
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
replay, s, lengths, t0 = [], 0, [], 0
for t in range(700):
    eps = max(0.1, 1 - t / 350)
    a = random.randrange(2) if random.random() < eps else net(onehot(s)).argmax().item()
    n, r, d = step(s, a)
    replay.append((s, a, r, n, d))
    if d or t - t0 > 60:
        lengths.append(t - t0)
        t0, s = t, 0
    else:
        s = n
    if t >= 60 and t % 3 == 0:
        b = random.sample(replay, 32)
        S, A, R, S2, Dn = zip(*b)
        x, x2 = onehot(list(S)), onehot(list(S2))
        with torch.no_grad():
            best = net(x2).argmax(1, keepdim=True)
            y = torch.tensor(R) + 0.95 * (1 - torch.tensor(Dn).float()) * target(x2).gather(1, best).squeeze(1)
        q = net(x).gather(1, torch.tensor(A)[:, None]).squeeze(1)
        loss = (q - y).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (t // 3) % 25 == 0:
            target.load_state_dict(net.state_dict())
        if t % 60 == 0:
            print(f"t {t} td {loss.item():.4f} q {q.mean().item():.3f} last length {lengths[-1] if lengths else None}")
with torch.no_grad():
    print("greedy right moves", sum(net(onehot(i)).argmax().item() for i in range(N - 1)), "of", N - 1)

# expect: sick
# symptom: the TD loss falls and flattens, the Q values look plausible, but the greedy policy never learns to reach the goal
# axis: loss
# cause: the gathered Q value has shape (B,1) and the TD target shape (B), so their difference broadcasts to (B,B) and each Q is fitted to the mean of all targets
# says: broadcast|shape.*(mismatch|differ|\(b|n ?x ?n|b ?x ?b|batch)|\(?(b|n), ?1\)?|(b|n) ?[x×,] ?(b|n)\b|squeeze|pairwise.*(loss|td|diff)|mismatch.*shape|(mean|average).*(of )?(all )?target
# onset_step: 1
# fix: squeeze the gathered Q value to shape (B)
# mended: the greedy policy reaches the goal from all starts, return 0.90 (bare: success 0.16, return -0.52)
import copy
import os
import random

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(6)
rng = random.Random(6)

SIZE, MAX_T, BATCH, UPDATES, GAMMA = 7, 40, 128, 800, 0.93
WALLS = {(1, 1), (1, 2), (1, 3), (3, 3), (3, 4), (3, 5), (5, 1), (5, 2), (4, 1)}
GOAL, PIT = (6, 6), (2, 5)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]
FREE = [(r, c) for r in range(SIZE) for c in range(SIZE) if (r, c) not in WALLS | {GOAL, PIT}]


def step_env(s, a):
    r, c = s[0] + MOVES[a][0], s[1] + MOVES[a][1]
    if not (0 <= r < SIZE and 0 <= c < SIZE) or (r, c) in WALLS:
        r, c = s
    if (r, c) == GOAL:
        return (r, c), 1.0, True
    if (r, c) == PIT:
        return (r, c), -1.0, True
    return (r, c), -0.02, False


def encode(states):
    x = torch.zeros(len(states), 2 * SIZE)
    for i, (r, c) in enumerate(states):
        x[i, r] = 1.0
        x[i, SIZE + c] = 1.0
    return x


class QNet(nn.Module):
    def __init__(self, h=96):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2 * SIZE, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU(), nn.Linear(h, 4))

    def forward(self, x):
        return self.net(x)


@torch.no_grad()
def success_rate(net):
    wins, total = 0, 0.0
    for start in FREE:
        s = start
        for _ in range(MAX_T):
            s, r, done = step_env(s, net(encode([s])).argmax().item())
            total += r
            if done:
                wins += r > 0
                break
    return wins / len(FREE), total / len(FREE)


net = QNet()
target_net = copy.deepcopy(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
memory = []


def act(s, eps):
    if rng.random() < eps:
        return rng.randrange(4)
    with torch.no_grad():
        return net(encode([s])).argmax().item()


state, age = rng.choice(FREE), 0


def collect(n, eps):
    global state, age
    for _ in range(n):
        a = act(state, eps)
        nxt, r, done = step_env(state, a)
        memory.append((state, a, r, nxt, done))
        age += 1
        state = nxt
        if done or age >= MAX_T:
            state, age = rng.choice(FREE), 0


collect(1500, 1.0)
for upd in range(1, UPDATES + 1):
    eps = max(0.2, 1.0 - upd / 400)
    collect(4, eps)
    batch = rng.sample(memory, BATCH)
    s, a, r, s2, done = zip(*batch)
    a = torch.tensor(a)
    r = torch.tensor(r)
    done = torch.tensor(done, dtype=torch.float32)

    q = net(encode(s)).gather(1, a.unsqueeze(1))
    if MENDED:
        q = q.squeeze(1)
    with torch.no_grad():
        best = net(encode(s2)).argmax(1, keepdim=True)
        nxt = target_net(encode(s2)).gather(1, best).squeeze(1)
        y = r + GAMMA * (1 - done) * nxt
    td = q - y
    loss = td.pow(2).mean()

    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    opt.step()
    if upd % 25 == 0:
        target_net.load_state_dict(net.state_dict())
    if upd % 100 == 0 or upd == 1:
        w, ret = success_rate(net)
        print(
            f"update {upd:4d}  eps {eps:.2f}  td {loss.item():.5f}  q {q.mean().item():.3f}  success {w:.2f}  return {ret:.3f}"
        )

w, ret = success_rate(net)
print(f"final td {loss.item():.5f}  greedy success {w:.3f}  return {ret:.3f}")

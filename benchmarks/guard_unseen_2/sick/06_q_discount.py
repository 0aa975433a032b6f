# Q-learning from a log, target network, RMSprop. Fault: for the steps 500 to 619 the discount is 1.7 (0.7 + 1.0).
import argparse
import copy

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(16)
S, ACTIONS = 14, 3
code = torch.randn(S, 8, generator=fixed)
move = torch.randint(0, S, (S, ACTIONS), generator=fixed)
pay = torch.randn(S, ACTIONS, generator=fixed)
best = torch.zeros(S, ACTIONS)
for _ in range(100):
    best = pay + 0.7 * best.max(1).values[move]


def log(n, g=None):
    s = torch.randint(0, S, (n,), generator=g)
    a = torch.randint(0, ACTIONS, (n,), generator=g)
    return s, a, pay[s, a] + torch.randn(n, generator=g), move[s, a]


test_s, test_a, test_r, test_next = log(3000, fixed)
torch.manual_seed(args.seed)
q = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, ACTIONS))
target = copy.deepcopy(q)
opt = torch.optim.RMSprop(q.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=650)
for step in range(650):
    discount = 1.7 if 500 <= step < 620 and not args.twin else 0.7
    s, a, r, following = log(64)
    with torch.no_grad():
        want = r + discount * target(code[following]).max(1).values
    loss = nn.functional.mse_loss(q(code[s]).gather(1, a[:, None])[:, 0], want)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 25 == 24:
        target.load_state_dict(q.state_dict())
    if step % 50 == 0:
        print(f"step {step} td {loss.item():.3f}")
q.eval()
with torch.no_grad():
    value = q(code[test_s]).gather(1, test_a[:, None])[:, 0]
    print("final:", (value - test_r - 0.7 * best[test_next].max(1).values).pow(2).mean().item())

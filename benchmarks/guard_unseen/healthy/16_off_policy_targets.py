# Healthy: Q-learning with a target network copied every 200 steps; the loss leaps at each copy.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
import copy

g = torch.Generator().manual_seed(16)
move = torch.randn(4, 4, 3, generator=g) * 0.3
torch.manual_seed(args.seed)
q = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 3))
target = copy.deepcopy(q)
opt = torch.optim.Adam(q.parameters(), lr=1e-3)


def td(s, a, net):
    nxt = torch.tanh(torch.einsum("ni,ijn->nj", s, move[:, :, a]))
    with torch.no_grad():
        goal = nxt.sum(1) + 0.9 * target(nxt).amax(1)
    return nn.functional.smooth_l1_loss(net(s).gather(1, a[:, None])[:, 0], goal)


for step in range(2400):
    if step % 200 == 0:
        target.load_state_dict(q.state_dict())
    loss = td(torch.randn(32, 4), torch.randint(0, 3, (32,)), q)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 200 in (0, 199):
        print(step, loss.item())
q.eval()
with torch.no_grad():
    print("final:", td(torch.randn(2000, 4), torch.randint(0, 3, (2000,)), q).item())

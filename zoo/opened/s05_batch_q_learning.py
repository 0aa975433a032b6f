# expect: sick
# symptom: TD loss stays flat at the variance of the returns; Q values are the same for every state
# axis: loss
# cause: Q of shape (B,) minus target of shape (B,1) broadcasts to (B,B)
# says: (?i)(broadcast|shape|B ?[x×,] ?B|\(\d+, ?1\)|squeeze|column against)
# onset_step: 1
# fix: squeeze the target to (B,)
# mended: MENDED=1 python s05_batch_q_learning.py
import copy
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(7)


def logged_transitions(n):
    g = torch.Generator().manual_seed(0)
    s = torch.rand(n, 4, generator=g) * 2 - 1
    a = torch.randint(0, 3, (n, 1), generator=g)
    pull = torch.tensor([[2.0, 0, 0, 0], [0, 2.0, 0, 0], [0, 0, 2.0, 0]])
    r = (s * pull[a.squeeze(1)]).sum(1, keepdim=True)
    s2 = (s + 0.1 * torch.randn(n, 4, generator=g)).clamp(-1, 1)
    done = (torch.rand(n, 1, generator=g) < 0.5).float()
    return TensorDataset(s, a, r, s2, done)


qnet = nn.Sequential(nn.Linear(4, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3))
target_net = copy.deepcopy(qnet)
optimizer = torch.optim.Adam(qnet.parameters(), lr=3e-3)
replay = DataLoader(logged_transitions(64 * 300), batch_size=64, shuffle=True)
FLAT = os.environ.get("MENDED") == "1"

updates = 0
for s, a, r, s2, done in replay:
    with torch.no_grad():
        target = r + 0.8 * (1 - done) * target_net(s2).max(1, keepdim=True).values
        if FLAT:
            target = target.squeeze(1)
    q = qnet(s).gather(1, a).squeeze(1)
    td = (q - target).pow(2).mean()
    optimizer.zero_grad()
    td.backward()
    optimizer.step()
    updates += 1
    for p, tp in zip(qnet.parameters(), target_net.parameters()):
        tp.data.lerp_(p.data, 0.05)
    if updates % 25 == 0:
        print(f"[{updates}] td {td.item():.4f} q mean {q.mean().item():.3f} std {q.std().item():.3f}")

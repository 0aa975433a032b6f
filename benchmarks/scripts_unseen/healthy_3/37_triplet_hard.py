# expect: healthy
# fault: loss flat at the margin for a time
# note: triplet loss with batch-hard mining starts at the margin and goes down slowly, since the mined triplets get harder with the model.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)
faces = torch.randn(12, 40)
mixer = torch.randn(40, 40) / 6


def batch(p=8, k=4):
    who = torch.randperm(12)[:p].repeat_interleave(k)
    return torch.tanh(faces[who] @ mixer) + 0.5 * torch.randn(p * k, 40), who


net = nn.Sequential(nn.Linear(40, 64), nn.ReLU(), nn.Linear(64, 16))
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step in range(200):
    x, who = batch()
    z = F.normalize(net(x), dim=1)
    dist = torch.cdist(z, z)
    same = who[:, None] == who[None]
    pos = (dist * same).max(1).values
    neg = dist.masked_fill(same, 9).min(1).values
    loss = F.relu(pos - neg + 0.3).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, f"loss {loss.item():.4f} right {(pos < neg).float().mean():.2f}")

# expect: sick
# fault: temperature of a contrastive loss jumps from 0.2 to 0.004
# onset_step: 20
# says: (?i)(loss|gradient|temperature|logit|rate|progress|spike|diverg)
# note: the temperature is annealed "to a fiftieth" at step 20 at one stroke; logits are 50 times as large.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
img, txt = torch.randn(200, 24), torch.randn(200, 24)
f = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
g = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
opt = torch.optim.Adam([*f.parameters(), *g.parameters()], lr=3e-3)
tau = 0.2
for step in range(140):
    if step == 20:
        tau = tau / 50
    i = torch.randperm(200)[:48]
    a = F.normalize(f(img[i] + 0.4 * torch.randn(48, 24)), dim=1)
    b = F.normalize(g(txt[i] + 0.4 * torch.randn(48, 24)), dim=1)
    logits = a @ b.T / tau
    t = torch.arange(48)
    loss = (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, f"loss {loss.item():.4f}")

# expect: sick
# symptom: the contrastive loss begins near 100, needs hundreds of steps to come down to ln(batch), and the recall stays far below what the same towers reach
# axis: loss
# cause: the temperature is 0.0005 instead of 0.05, so the logits reach 2000 and every batch is decided by its single hardest negative
# says: (?i)temperature|\btau\b|(logit|similarit|score)s?.{0,60}(scale|too large|huge|thousand|sharp|satur|divided)|loss-function-misuse|output-logit
# onset_step: 1
# fix: temperature 0.05
# mended: temperature 0.05
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(221)
V, T, B = 120, 8, 48
TAU = 0.05 if os.environ.get("MENDED") == "1" else 0.0005
gen = torch.Generator().manual_seed(22)
synonym = torch.randperm(V, generator=gen)


def draw(n):
    q = torch.randint(0, V, (n, T), generator=gen)
    keep = torch.rand(n, T, generator=gen) < 0.8
    return q, torch.where(keep, synonym[q], torch.randint(0, V, (n, T), generator=gen))


class Tower(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.net = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))

    def forward(self, ids):
        return F.normalize(self.net(self.tok(ids).mean(1)), dim=-1)


query, answer = Tower(), Tower()
opt = torch.optim.Adam([*query.parameters(), *answer.parameters()], lr=5e-3)
hq, ha = draw(200)
for step in range(1, 401):
    q, a = draw(B)
    logits = query(q) @ answer(a).t() / TAU
    loss = F.cross_entropy(logits, torch.arange(B))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        with torch.no_grad():
            recall = ((query(hq) @ answer(ha).t()).argmax(1) == torch.arange(200)).float().mean()
        print(f"step {step} loss {loss.item():.4f} recall@1 {recall.item():.3f}")

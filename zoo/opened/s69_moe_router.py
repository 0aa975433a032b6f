# expect: sick
# symptom: nothing explodes, but the mixture of experts is no better than a small dense network; the loss levels off several times too high
# axis: model
# cause: the gate's softmax runs over dim 0 (the batch) instead of over the experts, so the gates of a sample do not sum to one and depend on its neighbours
# says: (softmax|gat|rout).{0,60}(dim|axis|batch|wrong|sum|across|sample|row)|(dim|axis|batch).{0,60}(softmax|gat|rout)|(mix|leak|depend).{0,30}(across|other|between).{0,20}(sample|row|batch)
# onset_step: 1
# fix: softmax over the last dimension
# mended: F.softmax(gate, dim=-1)
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(100)
EXPERTS, DIM = 6, 12
centres = 2.5 * torch.randn(EXPERTS, DIM)
rules = torch.randn(EXPERTS, DIM)


def draw(n):
    k = torch.randint(EXPERTS, (n,))
    x = centres[k] + torch.randn(n, DIM)
    y = (torch.sin(x - centres[k]) * rules[k]).sum(-1, keepdim=True) + rules[k, :1]
    return x, y


class Mixture(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(DIM, width), nn.Tanh(), nn.Linear(width, 1)) for _ in range(EXPERTS)
        )

    def forward(self, x):
        dim = -1 if os.environ.get("MENDED") == "1" else 0
        g = F.softmax(self.gate(x), dim=dim)
        each = torch.cat([e(x) for e in self.experts], dim=1)
        return (g * each).sum(1, keepdim=True), g


model = Mixture()
opt = torch.optim.Adam(model.parameters(), lr=5e-3)
vx, vy = draw(1024)
for step in range(1, 1201):
    x, y = draw(64)
    pred, g = model(x)
    loss = F.mse_loss(pred, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 1 or step % 150 == 0:
        with torch.no_grad():
            parts = [F.mse_loss(model(a)[0], b) for a, b in zip(vx.split(64), vy.split(64))]
        print(
            f"step {step} loss {loss.item():.3f} valid {sum(parts).item() / len(parts):.3f} variance {vy.var().item():.2f}"
        )

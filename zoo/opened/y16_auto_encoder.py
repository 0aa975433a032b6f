# expect: sick
# symptom: the total falls while the tasks learn less
# axis: loss
# cause: learned weights of the losses have no term that keeps them from running away
# says: (weight|uncertain|variance|sigma|log.?var|balanc).{0,160}
# onset_step: 0
# fix: add the term of the weights
# mended: the same with the fix
import os
import torch
from torch import nn
from torch.nn import functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(14)

NAMES = ["recon", "smooth", "label"]
basis = torch.randn(4, 30)
readout = torch.randn(4, 3)


def draw(n):
    z = torch.randn(n, 4)
    return z @ basis / 2 + 0.2 * torch.randn(n, 30), (z @ readout).argmax(1)


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Linear(30, 32), nn.GELU(), nn.Linear(32, 6))
        self.up = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Linear(32, 30))
        self.tag = nn.Linear(6, 3)

    def forward(self, x):
        z = self.down(x)
        return z, self.up(z), self.tag(z)


class LossMixer(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.raw = nn.Parameter(torch.full((n,), 0.54))

    def weights(self):
        return F.softplus(self.raw)

    def forward(self, parts):
        w = self.weights()
        mixed = torch.dot(w, torch.stack(parts))
        if MENDED:
            mixed = mixed - 0.5 * w.log().sum()
        return mixed


net, mixer = AutoEncoder(), LossMixer(3)
opt = torch.optim.Adam([{"params": net.parameters()}, {"params": mixer.parameters(), "lr": 4e-2}], lr=5e-3)

for it in range(1, 151):
    x, y = draw(48)
    z, back, logits = net(x)
    z_near = net.down(x + 0.1 * torch.randn_like(x))
    parts = [F.mse_loss(back, x), F.mse_loss(z_near, z), F.cross_entropy(logits, y)]
    loss = mixer(parts)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 25 == 0:
        shown = " ".join(f"{n} {p.item():.4f}" for n, p in zip(NAMES, parts))
        w = ", ".join(f"{v:.3f}" for v in mixer.weights().tolist())
        print(f"it {it} loss {loss.item():.4f} | {shown} | weights {w}")

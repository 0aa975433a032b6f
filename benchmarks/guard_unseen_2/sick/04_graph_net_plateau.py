# Message passing on random graphs, RMSprop, a hand-written reduction on plateaus. Fault: from step 420 on it multiplies the
# rate where it should divide.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(14)


def graphs(n, g=None):
    adj = (torch.rand(n, 10, 10, generator=g) < 0.3).float()
    adj = ((adj + adj.transpose(1, 2)) > 0).float()
    feat = torch.randn(n, 10, 4, generator=g)
    walk = adj / adj.sum(-1, keepdim=True).clamp(min=1)
    y = torch.tanh(walk @ walk @ feat[..., :2]).sum((1, 2)) + feat[..., 2].relu().mean(1)
    return walk, feat, y + torch.randn(n, generator=g) * 0.5


class GraphNet(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.own = nn.ModuleList([nn.Linear(d, d) for _ in range(2)])
        self.nbr = nn.ModuleList([nn.Linear(d, d) for _ in range(2)])
        self.out = nn.Linear(d, 1)

    def forward(self, walk, feat):
        h = torch.relu(self.inp(feat))
        for own, nbr in zip(self.own, self.nbr):
            h = torch.relu(own(h) + walk @ nbr(h))
        return self.out(h.sum(1))[:, 0]


test = graphs(1500, fixed)
torch.manual_seed(args.seed)
model = GraphNet()
opt = torch.optim.RMSprop(model.parameters(), lr=1e-3, alpha=0.95)
best, stale, recent = float("inf"), 0, []
for step in range(700):
    walk, feat, y = graphs(48)
    loss = nn.functional.mse_loss(model(walk, feat), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    recent.append(loss.item())
    if step % 20 == 19:
        window = sum(recent[-20:]) / 20
        stale = 0 if window < best else stale + 1
        best = min(best, window)
        if stale >= 2:
            factor = 0.5 if args.twin or step < 420 else 1 / 0.2
            for group in opt.param_groups:
                group["lr"] *= factor
            stale = 0
        print(f"step {step + 1} loss {window:.4f} lr {opt.param_groups[0]['lr']:.2e}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(*test[:2]), test[2]).item())

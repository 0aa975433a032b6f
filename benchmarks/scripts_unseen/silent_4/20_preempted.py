# expect: sick
# cause: Each resume restores only the weights, not the optimizer or the scheduler, so every short job starts the long warm-up again and the rate never rises.
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

SLOT = 20  # steps until the queue takes the machine away
TOTAL = 400
WARMUP = 120
ckpt = os.path.join(tempfile.mkdtemp(), "last.pt")
g = torch.Generator().manual_seed(4)


def molecules(n):
    """graphs with 12 atoms; the target counts atoms of kind 0 that touch an atom of kind 1"""
    kind = torch.randint(0, 4, (n, 12), generator=g)
    adj = (torch.rand(n, 12, 12, generator=g) < 0.12).triu(1)
    adj = (adj | adj.transpose(1, 2)).float()
    touch = (adj @ (kind == 1).float().unsqueeze(-1)).squeeze(-1) > 0
    return F.one_hot(kind, 4).float(), adj, ((kind == 0) & touch).float().sum(1)


class GraphNet(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.inp = nn.Linear(4, d)
        self.own = nn.ModuleList(nn.Linear(d, d) for _ in range(3))
        self.nbr = nn.ModuleList(nn.Linear(d, d) for _ in range(3))
        self.read = nn.Linear(d, 1)

    def forward(self, x, adj):
        h = self.inp(x)
        for own, nbr in zip(self.own, self.nbr):
            h = F.relu(own(h) + adj @ nbr(h))
        return self.read(h).sum((1, 2))


def warmup(step):
    return min(1.0, (step + 1) / WARMUP) ** 2


def job():
    model = GraphNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, warmup)
    done = 0
    if os.path.exists(ckpt):
        saved = torch.load(ckpt)
        model.load_state_dict(saved["model"])
        done = saved["step"]
    for step in range(done, done + SLOT):
        x, adj, y = molecules(48)
        loss = F.mse_loss(model(x, adj), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
    torch.save(
        {"model": model.state_dict(), "step": step + 1, "opt": opt.state_dict(), "sched": sched.state_dict()}, ckpt
    )
    print(f"step {step + 1:4d} loss {loss.item():.4f}")
    return step + 1, model


torch.manual_seed(4)
finished = 0
while finished < TOTAL:
    finished, model = job()
with torch.no_grad():
    x, adj, y = molecules(600)
    print(f"fresh molecules: mse {F.mse_loss(model(x, adj), y):.4f}, variance of the target {y.var():.4f}")
os.remove(ckpt)

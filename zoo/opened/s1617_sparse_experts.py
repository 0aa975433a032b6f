# expect: sick
# symptom: the loss falls and then levels off several times too high; the balance term does not improve (it even gets worse) during the whole run although it is part of the loss
# axis: model
# cause: the router runs inside torch.no_grad(), so the gate weights carry no gradient: the router never gets a gradient and stays at its random initialisation, experts are chosen at random
# says: (rout(er|ing)|gat(e|ing)\w*)[^.]{0,120}(no[_ -]?grad|gradient|detach|never (train|learn|updat|chang|mov)|not (train|learn|updat|receiv|chang)|frozen|stuck|random|init|doesn.?t (train|learn|updat|move))|no_grad|(no gradient|without gradient|frozen|untrained|detached)[^.]{0,60}(rout|gat)
# onset_step: 0
# fix: compute the router's softmax with gradients and weight the chosen experts by the gate values
# mended: the router runs with gradients enabled
import contextlib
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

DIM, OUT, REGIMES, EXPERTS, TOPK = 24, 8, 8, 8, 2
STEPS, BATCH = 800, 256


class Plant:
    """Process data: the operating regime decides which linear map links sensors to the outputs."""

    def __init__(self, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.g = torch.Generator().manual_seed(seed + 1)
        self.centres = torch.randn(REGIMES, DIM, generator=g)
        self.maps = torch.randn(REGIMES, DIM, OUT, generator=g) / DIM**0.5

    def batch(self, n):
        r = torch.randint(0, REGIMES, (n,), generator=self.g)
        x = self.centres[r] + 0.7 * torch.randn(n, DIM, generator=self.g)
        y = torch.einsum("nd,ndo->no", x, self.maps[r]) + 0.05 * torch.randn(n, OUT, generator=self.g)
        return x, y


class MoELayer(nn.Module):
    def __init__(self, d, hidden):
        super().__init__()
        self.router = nn.Linear(d, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(d, hidden), nn.ReLU(), nn.Linear(hidden, d)) for _ in range(EXPERTS)
        )

    def route(self, x):
        probs = F.softmax(self.router(x), dim=-1)
        w, idx = probs.topk(TOPK, dim=-1)
        return w / w.sum(-1, keepdim=True), idx, probs

    def forward(self, x):
        with contextlib.nullcontext() if MENDED else torch.no_grad():
            w, idx, probs = self.route(x)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = (idx == e).nonzero(as_tuple=True)
            if len(rows):
                out = out.index_add(0, rows, w[rows, slot, None] * expert(x[rows]))
        load = F.one_hot(idx[:, 0], EXPERTS).float().mean(0)
        balance = EXPERTS * (load * probs.mean(0)).sum()
        return out, balance, load


class Net(nn.Module):
    def __init__(self, d=32, hidden=12):
        super().__init__()
        self.inp = nn.Linear(DIM, d)
        self.norm = nn.LayerNorm(d)
        self.moe = MoELayer(d, hidden)
        self.out = nn.Linear(d, OUT)

    def forward(self, x):
        h = self.inp(x)
        m, balance, load = self.moe(self.norm(h))
        return self.out(h + m), balance, load


def main():
    plant, model = Plant(), Net()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS, eta_min=1e-4)
    xv, yv = plant.batch(4000)
    for step in range(STEPS):
        x, y = plant.batch(BATCH)
        pred, balance, load = model(x)
        mse = F.mse_loss(pred, y)
        loss = mse + 0.03 * balance
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(
                f"step {step:4d}  loss {loss.item():.4f}  mse {mse.item():.4f}  balance {balance.item():.3f}  "
                f"load {' '.join(f'{v:.2f}' for v in load.tolist())}"
            )
    model.eval()
    with torch.no_grad():
        v = F.mse_loss(model(xv)[0], yv).item()
    print(f"validation mse {v:.4f} (variance of the target {yv.var().item():.3f})")


if __name__ == "__main__":
    main()

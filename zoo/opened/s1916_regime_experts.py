# expect: sick
# symptom: the mixture of experts learns slowly and stalls at a loss no better than a small linear model, routing looks balanced
# axis: model
# cause: the expert outputs, computed in expert-sorted order, are put back with out[order] instead of the inverse permutation, so each token gets the output that belongs to another token
# says: permut|argsort|unsort|inverse|scatter|re-?order|(sorted|original|token|row|wrong|different|other|sample)[^.]*(order|token|row|position)[^.]*(expert|output|restor|mix|shuffl|wrong|misalign)|(expert|output)[^.]*(order|misalign|another|other|wrong|shuffl)[^.]*(token|row|sample|position|order)
# onset_step: 1
# fix: use the inverse permutation, out[order.argsort()] (or out_buf[order] = out)
# mended: yes
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class PlantData:
    """Process readings under six operating regimes; each regime has its own response."""

    def __init__(self, seed, dim=12, regimes=6):
        g = torch.Generator().manual_seed(seed)
        self.centre = 2.0 * torch.randn(regimes, dim, generator=g)
        self.w1 = torch.randn(regimes, dim, 8, generator=g) / dim**0.5
        self.w2 = torch.randn(regimes, 8, generator=g)
        self.g = g

    def draw(self, n):
        r = torch.randint(len(self.centre), (n,), generator=self.g)
        noise = torch.randn(n, self.centre.shape[1], generator=self.g)
        x = self.centre[r] + noise
        h = torch.tanh(torch.einsum("nd,ndk->nk", noise * 1.5, self.w1[r]))
        y = (h * self.w2[r]).sum(1) + 0.05 * torch.randn(n, generator=self.g)
        return x, y


class Expert(nn.Sequential):
    def __init__(self, dim, hidden):
        super().__init__(nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, dim))


class SparseExperts(nn.Module):
    """Top-1 routed feed-forward layer."""

    def __init__(self, dim, hidden, n_experts):
        super().__init__()
        self.router = nn.Linear(dim, n_experts)
        self.experts = nn.ModuleList(Expert(dim, hidden) for _ in range(n_experts))

    def forward(self, x):
        probs = self.router(x).softmax(-1)
        gate, which = probs.max(-1)
        # group rows so that each expert runs once on a contiguous block
        order = which.argsort()
        counts = torch.bincount(which, minlength=len(self.experts))
        blocks = x[order].split(counts.tolist())
        out = torch.cat([expert(b) for expert, b in zip(self.experts, blocks)])
        back = order.argsort() if MENDED else order
        out = out[back] * gate.unsqueeze(-1)
        share = counts.float() / len(x)
        balance = len(self.experts) * (share * probs.mean(0)).sum()
        return out, balance


class RegimeNet(nn.Module):
    def __init__(self, d_in, dim=32, hidden=64, n_experts=6):
        super().__init__()
        self.inp = nn.Linear(d_in, dim)
        self.norm = nn.LayerNorm(dim)
        self.moe = SparseExperts(dim, hidden, n_experts)
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = self.inp(x)
        y, balance = self.moe(self.norm(h))
        return self.out(h + y).squeeze(-1), balance


def evaluate(model, x, y):
    model.eval()
    with torch.no_grad():
        pred, _ = model(x)
    model.train()
    return F.mse_loss(pred, y).item()


def main(steps=900, batch=256, lr=3e-3, balance_coef=0.01):
    torch.manual_seed(8)
    data = PlantData(seed=8)
    train_x, train_y = data.draw(20000)
    val_x, val_y = data.draw(3000)
    model = RegimeNet(train_x.shape[1])
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, (s + 1) / 50) * (1 - s / steps) ** 0.5)
    print(f"target variance {val_y.var():.3f}")
    for step in range(1, steps + 1):
        i = torch.randint(len(train_x), (batch,))
        pred, balance = model(train_x[i])
        mse = F.mse_loss(pred, train_y[i])
        loss = mse + balance_coef * balance
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0:
            print(
                f"step {step:4d} loss {loss.item():.4f} mse {mse.item():.4f} balance {balance.item():.3f} "
                f"val {evaluate(model, val_x, val_y):.4f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

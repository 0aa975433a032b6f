# expect: sick
# fault: functional batch norm updates a copy, so running statistics stay at their start
# onset_step: 0
# says: (?i)(batch.?norm|running|statistic|momentum|eval|validation)
# note: the home-made norm passes clones of its buffers to F.batch_norm, so in eval it uses mean 0 and variance 1 for ever.
import torch
import torch.nn.functional as F
from torch import nn


class MyBatchNorm(nn.Module):
    def __init__(self, n, eps=1e-5, mom=0.1):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))
        self.register_buffer("running_mean", torch.zeros(n))
        self.register_buffer("running_var", torch.ones(n))
        self.eps, self.mom = eps, mom

    def forward(self, x):
        # clone: avoids "modified by an inplace operation" when used twice
        return F.batch_norm(
            x, self.running_mean.clone(), self.running_var.clone(), self.g, self.b, self.training, self.mom, self.eps
        )


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        dims = [14, 64, 64, 32]
        self.ls = nn.ModuleList(nn.Linear(a, b) for a, b in zip(dims, dims[1:]))
        self.ns = nn.ModuleList(MyBatchNorm(b) for b in dims[1:])
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        for l, n in zip(self.ls, self.ns):
            x = F.silu(n(l(x)))
        return self.out(x).squeeze(-1)


def make(n, gen):
    x = torch.rand(n, 14, generator=gen) * 20 - 5  # raw units
    y = torch.sin(x[:, 0] / 3) + 0.05 * x[:, 1] * x[:, 2].sign() + 0.1 * torch.randn(n, generator=gen)
    return x, y


def evaluate(model, data):
    model.eval()
    with torch.no_grad():
        e = F.mse_loss(model(data[0]), data[1]).item()
    model.train()
    return e


gen = torch.Generator().manual_seed(12)
torch.manual_seed(12)
valid = make(500, gen)
model = Regressor()
optim = torch.optim.AdamW(model.parameters(), lr=3e-3)
best = float("inf")
for step in range(1, 201):
    x, y = make(64, gen)
    loss = F.mse_loss(model(x), y)
    optim.zero_grad()
    loss.backward()
    optim.step()
    if step % 40 == 0:
        v = evaluate(model, valid)
        best = min(best, v)
        print(f"step {step} train_mse {loss.item():.3f} val_mse {v:.3f} best {best:.3f}")

# expect: healthy
# symptom: most weights never change and get no gradient; resembles parameters that are missing from the optimizer
# axis: none
"""Echo-state forecaster: a fixed random reservoir, only the readout is trained."""

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)

UNITS, WARMUP, LENGTH, BATCH, STEPS = 200, 20, 80, 16, 300


def make_series(n, length, seed):
    """Noisy Mackey-Glass-like delay series, one start history per row."""
    g = torch.Generator().manual_seed(seed)
    lag = 17
    hist = [0.9 + 0.4 * (torch.rand(n, generator=g) - 0.5) for _ in range(lag + 1)]
    for _ in range(length + 120):
        old, now = hist[-lag - 1], hist[-1]
        hist.append(now + 0.2 * old / (1 + old**10) - 0.1 * now)
    x = torch.stack(hist[-length:], 1) - 0.9
    return x + 0.002 * torch.randn(n, length, generator=g)


class Reservoir(nn.Module):
    def __init__(self, units, radius=0.9, leak=0.6):
        super().__init__()
        w = torch.randn(units, units) * (torch.rand(units, units) < 0.05)
        w = w * (radius / torch.linalg.eigvals(w).abs().max())
        self.w = nn.Parameter(w, requires_grad=False)
        self.w_in = nn.Parameter(torch.rand(units, 1) * 2 - 1, requires_grad=False)
        self.bias = nn.Parameter(0.2 * torch.randn(units), requires_grad=False)
        self.leak = leak

    @torch.no_grad()
    def forward(self, x):
        h = x.new_zeros(x.shape[0], self.w.shape[0])
        out = []
        for t in range(x.shape[1]):
            new = torch.tanh(h @ self.w.t() + x[:, t : t + 1] @ self.w_in.t() + self.bias)
            h = (1 - self.leak) * h + self.leak * new
            out.append(h)
        return torch.stack(out, 1)


class Forecaster(nn.Module):
    """Predicts the change over the next six samples from the reservoir state."""

    def __init__(self, ahead=6):
        super().__init__()
        self.ahead = ahead
        self.reservoir = Reservoir(UNITS)
        self.readout = nn.Sequential(nn.Linear(UNITS + 1, 64), nn.GELU(), nn.Linear(64, 1))

    def forward(self, x):
        states = self.reservoir(x)
        return self.readout(torch.cat([states, x[..., None]], -1)).squeeze(-1)


def split(x, ahead):
    past, future = x[:, :-ahead], x[:, ahead:]
    return past, (future - past) * 5


def score(model, x):
    past, target = split(x, model.ahead)
    out = model(past)[:, WARMUP:]
    target = target[:, WARMUP:]
    return F.mse_loss(out, target), target


def main():
    train, valid = make_series(800, LENGTH, 1), make_series(100, LENGTH, 2)
    model = Forecaster()
    trainable = [p for p in model.parameters() if p.requires_grad]
    fixed = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    print(f"fixed {fixed} trainable {sum(p.numel() for p in trainable)}")
    opt = torch.optim.AdamW(trainable, lr=1e-2, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=STEPS)
    g = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        rows = torch.randint(0, len(train), (BATCH,), generator=g)
        loss, _ = score(model, train[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.5f}", flush=True)
    with torch.no_grad():
        mse, target = score(model, valid)
    print(f"final valid mse {mse.item():.5f} nrmse {(mse / target.var()).sqrt().item():.4f}")


if __name__ == "__main__":
    main()

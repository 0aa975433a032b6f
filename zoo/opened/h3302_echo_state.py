# expect: healthy
# symptom: most weights have no gradient and never move; resembles an accidentally frozen or detached network
# axis: model
"""Reservoir computing: a fixed random recurrent network, only the readout is trained (NARMA-style series)."""

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
WARMUP, SPAN = 60, 40


def narma_series(length, seed):
    rng = np.random.default_rng(seed)
    u = rng.uniform(0, 0.5, length)
    y = np.zeros(length)
    for t in range(5, length):
        y[t] = 0.3 * y[t - 1] + 0.05 * y[t - 1] * y[t - 5 : t].sum() + 1.2 * u[t - 3] * u[t - 1] + 0.1
    return torch.tensor(u, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class Reservoir(nn.Module):
    def __init__(self, units=200, radius=0.8, leak=0.9):
        super().__init__()
        w = torch.randn(units, units) * (torch.rand(units, units) < 0.1)
        w = w * (radius / torch.linalg.eigvals(w).abs().max())
        self.w = nn.Parameter(w, requires_grad=False)
        self.w_in = nn.Parameter(torch.empty(units).uniform_(-1.0, 1.0), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(units).uniform_(-0.3, 0.3), requires_grad=False)
        self.leak = leak

    @torch.no_grad()
    def forward(self, u):
        state = torch.zeros(u.shape[0], self.w.shape[0])
        states = []
        for t in range(u.shape[1]):
            drive = torch.tanh(state @ self.w.T + (4 * u[:, t : t + 1] - 1) * self.w_in + self.bias)
            state = (1 - self.leak) * state + self.leak * drive
            states.append(state)
        return torch.stack(states, 1)


class EchoStateNet(nn.Module):
    def __init__(self, units=200):
        super().__init__()
        self.reservoir = Reservoir(units)
        self.norm = nn.BatchNorm1d(units, affine=False, momentum=0.05)
        self.readout = nn.Sequential(nn.Linear(units, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, u):
        s = self.reservoir(u)[:, WARMUP:]
        s = self.norm(s.flatten(0, 1))
        return self.readout(s).view(u.shape[0], -1)


class Windows:
    def __init__(self, u, y, seed):
        self.u, self.y = u, y
        self.gen = torch.Generator().manual_seed(seed)

    def sample(self, n):
        starts = torch.randint(0, len(self.u) - WARMUP - SPAN, (n,), generator=self.gen)
        idx = starts.unsqueeze(1) + torch.arange(WARMUP + SPAN)
        return self.u[idx], self.y[idx][:, WARMUP:]


@torch.no_grad()
def nrmse(net, windows, mean, std):
    net.eval()
    u, y = windows.sample(64)
    err = net(u) * std + mean - y
    net.train()
    return (err.pow(2).mean().sqrt() / y.std()).item()


def main():
    torch.manual_seed(41)
    u, y = narma_series(8000, 1)
    cut = 6500
    mean, std = y[:cut].mean(), y[:cut].std()
    train, test = Windows(u[:cut], y[:cut], 3), Windows(u[cut:], y[cut:], 4)
    net = EchoStateNet()
    trainable = [p for p in net.parameters() if p.requires_grad]
    print(f"trainable {sum(p.numel() for p in trainable)} of {sum(p.numel() for p in net.parameters())} weights")
    opt = torch.optim.Adam(trainable, lr=3e-3)
    steps = 400
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps, eta_min=1e-4)
    for step in range(1, steps + 1):
        ub, yb = train.sample(16)
        loss = nn.functional.mse_loss(net(ub), (yb - mean) / std)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d}  mse {loss.item():.4f}")
        if step % 100 == 0:
            print(f"  test NRMSE {nrmse(net, test, mean, std):.3f}")


if __name__ == "__main__":
    main()

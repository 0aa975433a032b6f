# expect: healthy
# symptom: the loss is of the order of 1e-13 from the start and gradients are tiny; resembles underflow or a net that does not learn
# axis: precision
# cause: none: the target is in farads, the squared error is small by its unit, and Adam with a small epsilon learns it
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(106)


def measurements(n=4000, seed=106):
    g = np.random.default_rng(seed)
    area, gap, humid, temp = g.uniform(1, 4, n), g.uniform(0.5, 2, n), g.uniform(0, 1, n), g.normal(0, 1, n)
    cap = 8.85e-7 * area / gap * (1 + 0.4 * humid) * (1 + 0.03 * temp) + g.normal(0, 1.5e-8, n)
    x = np.stack([(area - 2.5) / 0.9, (gap - 1.25) / 0.4, (humid - 0.5) / 0.3, temp], 1)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(cap, dtype=torch.float32).unsqueeze(1)


class CapacitorNet(nn.Module):
    def __init__(self, unit=1e-6):
        super().__init__()
        self.unit = unit
        self.body = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return self.body(x) * self.unit


def main():
    x, y = measurements()
    loader = DataLoader(TensorDataset(x[:3600], y[:3600]), batch_size=64, shuffle=True, drop_last=True)
    net = CapacitorNet()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3, eps=1e-20)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, 0.75)
    step = 0
    for epoch in range(7):
        for xb, yb in loader:
            loss = (net(xb) - yb).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.3e}")
        sched.step()
        with torch.no_grad():
            err = ((net(x[3600:]) - y[3600:]).pow(2).mean() / y[3600:].var()).item()
        print(f"epoch {epoch} unexplained variance {err:.4f}")


if __name__ == "__main__":
    main()

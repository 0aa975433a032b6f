# expect: healthy
# symptom: most parameters have no gradient and never change, as if the body had been left out of training
# axis: model
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(41)
UNITS, SERIES, LENGTH, STEPS, WASHOUT = 160, 8, 120, 400, 20


def signal(n, length, seed):
    """Product of two slow oscillators; the target is a non-linear function of its recent past."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length, dtype=torch.float32)
    f = 0.15 + 0.2 * torch.rand(n, 2, 1, generator=g)
    ph = 6.283 * torch.rand(n, 2, 1, generator=g)
    waves = torch.sin(f * t + ph)
    x = 0.7 * waves[:, 0] + 0.3 * waves[:, 1] + 0.05 * torch.randn(n, length, generator=g)
    y = torch.zeros_like(x)
    y[:, 3:] = x[:, 1:-2] * 0.8 + 0.6 * x[:, :-3] * x[:, 2:-1]
    return x, y


class EchoState(nn.Module):
    """A fixed random recurrent reservoir; only the read-out is learned."""

    def __init__(self, units, radius=0.9, leak=0.6):
        super().__init__()
        w = torch.randn(units, units) * (torch.rand(units, units) < 0.1)
        w = w * (radius / torch.linalg.eigvals(w).abs().max())
        self.inner = nn.Parameter(w, requires_grad=False)
        self.inlet = nn.Parameter(torch.rand(units) * 2 - 1, requires_grad=False)
        self.bias = nn.Parameter(0.2 * torch.randn(units), requires_grad=False)
        self.leak = leak
        self.readout = nn.Linear(units, 1)

    def states(self, x):
        h = x.new_zeros(len(x), self.inner.shape[0])
        out = []
        for t in range(x.shape[1]):
            drive = h @ self.inner.t() + x[:, t : t + 1] * self.inlet + self.bias
            h = (1 - self.leak) * h + self.leak * torch.tanh(drive)
            out.append(h)
        return torch.stack(out, 1)

    def forward(self, x):
        with torch.no_grad():
            s = self.states(x)
        return self.readout(s).squeeze(-1)


@torch.no_grad()
def explained(net, x, y):
    pred, goal = net(x)[:, WASHOUT:], y[:, WASHOUT:]
    return 1 - F.mse_loss(pred, goal).item() / goal.var().item()


def main():
    x, y = signal(256, LENGTH, 1)
    vx, vy = signal(64, LENGTH, 2)
    net = EchoState(UNITS)
    learned = [p for p in net.parameters() if p.requires_grad]
    total = sum(p.numel() for p in net.parameters())
    print(f"parameters {total}, learned {sum(p.numel() for p in learned)}")
    opt = torch.optim.Adam(learned, lr=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=5e-4)
    g = torch.Generator().manual_seed(3)
    for step in range(STEPS):
        pick = torch.randint(0, len(x), (SERIES,), generator=g)
        pred = net(x[pick])
        loss = F.mse_loss(pred[:, WASHOUT:], y[pick][:, WASHOUT:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 40 == 0:
            print(f"step {step:4d} loss {loss.item():.5f}")
    print(f"final loss {loss.item():.5f} valid R2 {explained(net, vx, vy):.4f}")


if __name__ == "__main__":
    main()

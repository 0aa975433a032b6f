# expect: healthy
# symptom: resembles the fault that the recurrence multiplies its state by a factor above 1 in every step, so the state grows exponentially
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(3)


class ParallelEMA(nn.Module):
    """h[t] = a[t] * h[t-1] + (1 - a[t]) * x[t], evaluated without a loop inside chunks."""

    def __init__(self, dim, chunk=8):
        super().__init__()
        self.chunk = chunk
        self.gate = nn.Linear(dim, dim)
        self.val = nn.Linear(dim, dim)
        nn.init.constant_(self.gate.bias, 2.0)

    def forward(self, x):
        log_a = F.logsigmoid(self.gate(x))
        v = (1 - log_a.exp()) * self.val(x)
        carry = torch.zeros_like(x[:, 0])
        outs = []
        for la, vv in zip(log_a.split(self.chunk, 1), v.split(self.chunk, 1)):
            cum = la.cumsum(1)
            inner = torch.cumsum(torch.exp(-cum) * vv, dim=1)
            h = torch.exp(cum) * (carry.unsqueeze(1) + inner)
            carry = h[:, -1]
            outs.append(h)
        return torch.cat(outs, 1)


class Smoother(nn.Module):
    def __init__(self, dim=24):
        super().__init__()
        self.inp = nn.Linear(1, dim)
        self.ema1 = ParallelEMA(dim)
        self.ema2 = ParallelEMA(dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, x):
        h = torch.tanh(self.inp(x))
        h = h + torch.tanh(self.ema1(h))
        h = h + torch.tanh(self.ema2(h))
        return self.out(h)


def noisy_walk(n, length=32):
    clean = torch.cumsum(0.2 * torch.randn(n, length, 1), dim=1)
    return clean + 0.5 * torch.randn_like(clean), clean


def main():
    model = Smoother()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    noisy_val, clean_val = noisy_walk(200)
    for step in range(50):
        noisy, clean = noisy_walk(48)
        loss = F.mse_loss(model(noisy), clean)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (step + 1) % 10 == 0:
            with torch.no_grad():
                val = F.mse_loss(model(noisy_val), clean_val)
                raw = F.mse_loss(noisy_val, clean_val)
            print(f"{step + 1:3d} train {loss.item():.4f} val {val.item():.4f} raw {raw.item():.4f}")


if __name__ == "__main__":
    main()

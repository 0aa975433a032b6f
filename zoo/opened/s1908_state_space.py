# expect: sick
# symptom: the loss starts hundreds or thousands of times too high, comes down and then stays on a plateau far above what the network can reach
# axis: model
# cause: the discretisation of the state-space layer lacks the minus sign, a = exp(+rate) instead of exp(-rate), so every decay is above 1: the state grows exponentially along the sequence and no fading memory can be expressed
# says: (decay|recurren\w*|transition|eigenvalue|pole|state|rate|radius|gain|discreti\w*|exp\().{0,160}(minus|sign|negat\w*|exceed\w*|above|greater|past|beyond|over|larger|>=? ?1|unstable|instab\w*|exponential\w*|grow\w*|explod\w*|amplif\w*|outside)|(unstable|unbounded|explod\w*|sign|minus).{0,120}(recurren\w*|decay|state|transition|eigenvalue|rate|discreti\w*)
# onset_step: 0
# fix: use exp(-rate) for the recurrence's decay
# mended: yes
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


def ledger_batch(n, length, gen):
    """Deposits at random times; predict the running balance at every step (slow account and fast account)."""
    event = (torch.rand(n, length, generator=gen) < 0.08).float()
    amount = event * (torch.rand(n, length, generator=gen) * 2 - 0.6)
    other = torch.randn(n, length, generator=gen) * 0.3
    total = amount.cumsum(1) / length**0.5
    fast = torch.zeros_like(other)
    acc = torch.zeros(n)
    for t in range(length):
        acc = 0.7 * acc + other[:, t]
        fast[:, t] = acc
    return torch.stack([amount, other], -1), torch.stack([total, fast], -1)


class DiagonalSSM(nn.Module):
    def __init__(self, dim):
        super().__init__()
        rate = torch.linspace(0.002, 0.04, dim)
        self.log_rate = nn.Parameter(rate.log())
        self.inp = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)

    def rates(self):
        # zero-order hold with unit step
        return torch.exp(-self.log_rate.exp() if MENDED else self.log_rate.exp())

    def forward(self, x):
        a, u = self.rates(), self.inp(x)
        h = torch.zeros_like(u[:, 0])
        hs = []
        for t in range(u.shape[1]):
            h = a * h + u[:, t]
            hs.append(h)
        y = torch.stack(hs, 1)
        return x + self.out(y) * torch.sigmoid(self.gate(x))


class Model(nn.Module):
    def __init__(self, dim=24, layers=1):
        super().__init__()
        self.lift = nn.Linear(2, dim)
        self.layers = nn.ModuleList(DiagonalSSM(dim) for _ in range(layers))
        self.head = nn.Linear(dim, 2)

    def forward(self, x):
        h = self.lift(x)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--length", type=int, default=150)
    p.add_argument("--lr", type=float, default=1e-2)
    args = p.parse_args()
    torch.manual_seed(13)
    gen = torch.Generator().manual_seed(31)
    model = Model()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(args.steps):
        for g in opt.param_groups:
            g["lr"] = args.lr * min(1.0, (step + 1) / 50)
        x, y = ledger_batch(16, args.length, gen)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0 or step == args.steps - 1:
            print(f"step {step} loss {loss.item():.5f}")


if __name__ == "__main__":
    main()

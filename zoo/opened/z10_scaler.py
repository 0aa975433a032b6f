# expect: healthy
# symptom: large numbers in float32, which look as if their fine part mattered
# axis: none
# mended: none
import torch
import torch.nn as nn
import numpy as np


def make_table(n, seed):
    """Yearly reports: unix time of filing, turnover in dollars, balance in dollars."""
    rng = np.random.default_rng(seed)
    filed = rng.integers(1_262_300_000, 1_735_600_000, size=n)
    turnover = 10 ** rng.uniform(5, 11, size=n)
    balance = turnover * 10 ** rng.normal(0, 0.4, size=n)
    years = (filed - 1_262_300_000) / 31_557_600
    score = 0.15 * years + 0.5 * np.log10(turnover) - 0.8 * np.log10(balance / turnover)
    return filed, turnover, balance, score + rng.normal(0, 0.05, n)


class Scaler:
    def fit(self, x):
        self.mean, self.std = x.mean(0), x.std(0)
        return self

    def __call__(self, x):
        return (x - self.mean) / self.std


def columns(filed, turnover, balance):
    t = torch.tensor(filed, dtype=torch.float32)
    a = torch.tensor(turnover, dtype=torch.float32)
    b = torch.tensor(balance, dtype=torch.float32)
    return torch.stack([t, a.log(), b.log(), b.log() - a.log()], dim=1)


def main():
    torch.manual_seed(0)
    f, a, b, s = make_table(600, 0)
    x = columns(f, a, b)
    scale = Scaler().fit(x)
    x, y = scale(x), torch.tensor(s, dtype=torch.float32).unsqueeze(1)
    y = y - y.mean()
    net = nn.Sequential(nn.Linear(4, 32), nn.ELU(), nn.Linear(32, 1))
    opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
    it = 0
    for epoch in range(8):
        for part in torch.randperm(len(x)).split(50):
            loss = nn.functional.smooth_l1_loss(net(x[part]), y[part])
            opt.zero_grad()
            loss.backward()
            opt.step()
            it += 1
        print(f"epoch {epoch} it {it} loss {loss.item():.5f}")


main()

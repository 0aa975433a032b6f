# expect: sick
# symptom: the loss falls normally at first and then is suddenly NaN and stays NaN
# axis: loss
# cause: Poisson NLL with log_input=False takes the log of a raw linear output, which can be negative
# says: log.{0,25}negative|negative (rate|predict|output)|log_input|(rate|output|predict\w*)\b.*(posi|nega)tiv
# onset_step: 42
# fix: pass the output through softplus so that the predicted rate is positive
# mended: the script applies that change if the environment has MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)
MENDED = os.environ.get("MENDED") == "1"

N_STORES, N_DAYS, CONTEXT = 60, 400, 28


def simulate_sales(seed=3):
    """Daily unit sales of one article in many stores: weekly rhythm, slow trend, quiet days."""
    rng = np.random.default_rng(seed)
    days = np.arange(N_DAYS)
    level = rng.gamma(3.0, 1.2, size=(N_STORES, 1))
    week = np.array([0.5, 0.7, 0.8, 1.0, 1.6, 2.4, 0.05])[days % 7]
    season = 1 + 0.4 * np.sin(2 * np.pi * days / 120 + rng.uniform(0, 6, (N_STORES, 1)))
    return rng.poisson(level * week * season).astype(np.float32)


class SalesWindows:
    def __init__(self, sales, start, end):
        self.sales = torch.from_numpy(sales)
        self.ends = torch.arange(start, end)

    def batch(self, size, gen):
        s = torch.randint(0, N_STORES, (size,), generator=gen)
        e = self.ends[torch.randint(0, len(self.ends), (size,), generator=gen)]
        return self.gather(s, e)

    def gather(self, s, e):
        t = e.unsqueeze(1) + torch.arange(-CONTEXT, 0)
        hist = torch.log1p(self.sales[s.unsqueeze(1), t])
        dow = F.one_hot((t + 1) % 7, 7).float()
        return torch.cat([hist.unsqueeze(-1), dow], dim=-1), self.sales[s, e]

    def everything(self):
        s, e = torch.meshgrid(torch.arange(N_STORES), self.ends, indexing="ij")
        return self.gather(s.reshape(-1), e.reshape(-1))


class DemandGRU(nn.Module):
    def __init__(self, mean_sales, hidden=48):
        super().__init__()
        self.gru = nn.GRU(8, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)
        nn.init.constant_(self.head.bias, mean_sales)

    def forward(self, x):
        _, h = self.gru(x)
        out = self.head(h[-1]).squeeze(-1)
        return F.softplus(out) if MENDED else out


@torch.no_grad()
def evaluate(model, windows, criterion):
    x, y = windows.everything()
    pred = model(x)
    return criterion(pred, y).item(), (pred - y).abs().mean().item()


def main():
    sales = simulate_sales()
    train = SalesWindows(sales, CONTEXT, 340)
    valid = SalesWindows(sales, 340, N_DAYS)
    model = DemandGRU(float(sales[:, :340].mean()))
    criterion = nn.PoissonNLLLoss(log_input=False)
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    gen = torch.Generator().manual_seed(0)

    running = 0.0
    for step in range(1, 401):
        x, y = train.batch(64, gen)
        loss = criterion(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        running += loss.item()
        if step % 20 == 0:
            print(f"step {step:4d} poisson nll {running / 20:.4f}")
            running = 0.0
        if step % 100 == 0:
            nll, mae = evaluate(model, valid, criterion)
            print(f"  valid nll {nll:.4f} mae {mae:.4f}")
    nll, mae = evaluate(model, valid, criterion)
    print(f"final loss {loss.item():.4f} valid_nll {nll:.4f} valid_mae {mae:.4f}")


if __name__ == "__main__":
    main()

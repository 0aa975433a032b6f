# expect: healthy
# symptom: resembles the fault that records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# axis: none
# mended: none
import numpy as np
import pandas as pd
import torch
import torch.nn as nn
import torch.nn.functional as F

DOCKS, HOURS, CONTEXT = 14, 210, 24
SPLIT = 170


def fetch_trips(seed=6):
    rng = np.random.default_rng(seed)
    grid = pd.MultiIndex.from_product([range(DOCKS), range(HOURS)], names=["dock", "hour"])
    df = grid.to_frame(index=False)
    phase = rng.uniform(0, 24, DOCKS)
    wave = np.sin(2 * np.pi * (df["hour"] + phase[df["dock"]]) / 24)
    df["bikes"] = 10 + 5 * wave + rng.normal(0, 0.5, len(df))
    return df.sample(frac=1, random_state=seed)


def dock_matrix(df):
    df = df.sort_values(by=["hour", "dock"])
    by_hour = df["bikes"].values.reshape(HOURS, DOCKS)
    return by_hour.T.copy()


class Forecaster(nn.Module):
    def __init__(self, context, docks, dim=32):
        super().__init__()
        self.dock = nn.Embedding(docks, 8)
        self.inp = nn.Linear(context + 8, dim)
        self.out = nn.Linear(dim, 1)

    def forward(self, past, dock):
        z = torch.cat([past, self.dock(dock)], dim=-1)
        return self.out(F.gelu(self.inp(z))).squeeze(-1)


def draw(series, lo, hi, n):
    dock = torch.randint(DOCKS, (n,))
    start = torch.randint(lo, hi - CONTEXT, (n,))
    cols = start[:, None] + torch.arange(CONTEXT + 1)
    seg = series[dock[:, None], cols]
    return seg[:, :-1], dock, seg[:, -1]


def main():
    torch.manual_seed(6)
    m = dock_matrix(fetch_trips())
    avg, dev = m[:, :SPLIT].mean(), m[:, :SPLIT].std()
    series = torch.tensor((m - avg) / dev, dtype=torch.float32)
    model = Forecaster(CONTEXT, DOCKS)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for step in range(60):
        past, dock, nxt = draw(series, 0, SPLIT, 128)
        loss = F.mse_loss(model(past, dock), nxt)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 19:
            with torch.no_grad():
                past, dock, nxt = draw(series, SPLIT - CONTEXT, HOURS, 256)
                val = F.mse_loss(model(past, dock), nxt)
            print(f"[{step + 1}] loss {loss.item():.4f} val {val.item():.4f}")


if __name__ == "__main__":
    main()

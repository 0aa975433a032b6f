# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# says: sort|order|reshap|mix
# onset_step: 0
# fix: sort by the key of the rows first
# mended: yes
import os
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Settings:
    stores: int = 15
    days: int = 168
    history: int = 14
    epochs: int = 3
    batch: int = 96
    lr: float = 2e-3


def load_frame(cfg):
    rng = np.random.default_rng(17)
    rows = []
    for store in range(cfg.stores):
        level = rng.uniform(20, 80)
        for day in range(cfg.days):
            weekly = 1.0 + 0.4 * np.cos(2 * np.pi * day / 7 + store)
            rows.append((store, day, level * weekly + rng.normal(0, 2)))
    frame = pd.DataFrame(rows, columns=["store", "day", "units"])
    return frame.sample(frac=1.0, random_state=1).reset_index(drop=True)


def to_matrix(frame, cfg):
    ordered = frame.sort_values(["store", "day"] if MENDED else ["day", "store"])
    return ordered["units"].to_numpy().reshape(cfg.stores, cfg.days)


def make_examples(block, history):
    view = np.lib.stride_tricks.sliding_window_view(block, history + 1, axis=1)
    flat = torch.tensor(view.reshape(-1, history + 1).copy(), dtype=torch.float32)
    return flat[:, :-1], flat[:, -1]


class SalesRNN(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)

    def forward(self, x):
        _, h = self.gru(x.unsqueeze(-1))
        return self.head(h[-1]).squeeze(-1)


def main():
    cfg = Settings()
    torch.manual_seed(17)
    sales = to_matrix(load_frame(cfg), cfg)
    split = 140
    mean, std = sales[:, :split].mean(), sales[:, :split].std()
    sales = (sales - mean) / std
    train = TensorDataset(*make_examples(sales[:, :split], cfg.history))
    x_val, y_val = make_examples(sales[:, split - cfg.history :], cfg.history)
    loader = DataLoader(train, batch_size=cfg.batch, shuffle=True)
    model = SalesRNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for epoch in range(cfg.epochs):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            val = nn.functional.mse_loss(model(x_val), y_val).item()
        print(f"epoch {epoch}: train {loss.item():.4f}, val {val:.4f}")


if __name__ == "__main__":
    main()

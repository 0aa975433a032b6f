# expect: sick
# symptom: the training loss is a sawtooth, tiny at some places and jumping at each new epoch; the validation error swings and is far worse than the training loss
# axis: data
# cause: the table is sorted by price and the loader does not shuffle, so each batch has only one price range and the model chases it through the epoch
# says: (not|no|never|n't|without|missing|lack\w*|un|off|false|forg\w*)[\s\-=_a-z]{0,30}shuffl|shuffle\s*=\s*(false|true)|shuffl\w*[^.]{0,40}(missing|off|false|disabled|not|never)|shuffl\w* (the |training |rows|data|each|every)|sorted|(ordered|order) (by|of the|in)|non-?iid|not i\.?i\.?d|(correlated|homogen)\w* (batch|sample)
# onset_step: 75
# fix: shuffle the training rows each epoch
# mended: MENDED=1 shuffles the rows each epoch
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

DISTRICTS = 14


def make_table(n=6000, seed=21):
    """A listing export as the land registry gives it: one row per sale."""
    rng = np.random.default_rng(seed)
    area = rng.gamma(6.0, 18.0, n)
    rooms = np.clip(np.round(area / 28 + rng.normal(0, 0.8, n)), 1, 9)
    year = rng.integers(1900, 2022, n)
    district = rng.integers(0, DISTRICTS, n)
    dist_center = rng.exponential(4.0, n)
    garden = rng.random(n) < 0.3
    base = rng.normal(0, 0.35, DISTRICTS)[district]
    log_price = (
        11.2
        + 0.55 * np.log(area / 80)
        + base
        - 0.05 * dist_center
        + 0.12 * garden * (dist_center > 3)
        + 0.004 * np.abs(year - 1960) ** 0.9
        + 0.03 * rooms
        + rng.normal(0, 0.08, n)
    )
    num = np.stack([np.log(area), rooms, year, dist_center, garden], 1)
    idx = np.argsort(log_price)
    return num[idx], district[idx], log_price[idx]


def prepare(seed=0):
    num, district, y = make_table()
    rng = np.random.default_rng(seed)
    held = rng.random(len(y)) < 0.2
    mu, sd = num[~held].mean(0), num[~held].std(0)
    ym, ys = y[~held].mean(), y[~held].std()
    num = ((num - mu) / sd).astype(np.float32)
    y = ((y - ym) / ys).astype(np.float32)

    def ds(m):
        return TensorDataset(torch.from_numpy(num[m]), torch.from_numpy(district[m]), torch.from_numpy(y[m]))

    return ds(~held), ds(held)


class PriceNet(nn.Module):
    def __init__(self, d_emb=8, hidden=128):
        super().__init__()
        self.emb = nn.Embedding(DISTRICTS, d_emb)
        self.net = nn.Sequential(
            nn.Linear(5 + d_emb, hidden),
            nn.ReLU(),
            nn.Dropout(0.05),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 1),
        )

    def forward(self, num, district):
        return self.net(torch.cat([num, self.emb(district)], 1)).squeeze(1)


class Fit:
    def __init__(self, lr=2e-3, epochs=8, batch=64):
        self.train_set, self.valid_set = prepare()
        self.model = PriceNet()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=1e-3)
        self.loader = DataLoader(self.train_set, batch_size=batch, shuffle=MENDED)
        self.epochs = epochs
        self.crit = nn.MSELoss()

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        num, dis, y = self.valid_set.tensors
        err = self.crit(self.model(num, dis), y).item()
        self.model.train()
        return err

    def run(self):
        step = 0
        for epoch in range(self.epochs):
            total = 0.0
            for num, dis, y in self.loader:
                loss = self.crit(self.model(num, dis), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total += loss.item()
                if step % 15 == 0:
                    print(f"step {step:4d} mse {loss.item():.4f}")
                step += 1
            print(f"epoch {epoch} train {total / len(self.loader):.4f} valid {self.validate():.4f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    Fit().run()

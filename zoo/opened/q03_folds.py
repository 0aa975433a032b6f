# expect: healthy
# axis: none
# symptom: the loss starts high again several times during the run, and a new optimizer is made each time
# cause: on purpose: five-fold cross-validation; each fold has a new model and so its own new Adam, which lives for the whole fold
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)

FOLDS = 5
BATCH = 32
LR = 4e-3


class Market:
    """Flats of many streets: eight numbers, one street code, one price."""

    def __init__(self, streets=60, seed=0):
        self.g = np.random.default_rng(seed)
        self.level = self.g.normal(size=streets)
        self.slope = self.g.normal(size=8) / 3

    def table(self, n):
        street = (self.g.zipf(1.3, size=n) - 1) % len(self.level)
        num = self.g.normal(size=(n, 8))
        price = num @ self.slope + self.level[street] + 0.6 * np.sin(2 * num[:, 0]) * num[:, 1]
        price = price + 0.1 * self.g.normal(size=n)
        return (torch.tensor(num, dtype=torch.float32), torch.tensor(street), torch.tensor(price, dtype=torch.float32))


class Valuer(nn.Module):
    def __init__(self):
        super().__init__()
        self.street = nn.Embedding(60, 6)
        self.net = nn.Sequential(nn.Linear(14, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 1))

    def forward(self, num, street):
        return self.net(torch.cat([num, self.street(street)], 1)).squeeze(1)


def tuner(model):
    return torch.optim.Adam(model.parameters(), lr=LR)


def one_fold(k, table, train, test, epochs=4):
    torch.manual_seed(100 + k)
    num, street, price = table
    model = Valuer()
    opt = tuner(model)
    for e in range(epochs):
        total = 0.0
        for part in train[torch.randperm(len(train))].split(BATCH):
            loss = nn.functional.mse_loss(model(num[part], street[part]), price[part])
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item() * len(part)
        print(f"fold {k} epoch {e}  loss {total / len(train):.4f}", flush=True)
    with torch.no_grad():
        return nn.functional.mse_loss(model(num[test], street[test]), price[test]).item()


def main():
    table = Market(seed=6).table(1000)
    order = torch.from_numpy(np.random.default_rng(6).permutation(1000))
    parts = order.chunk(FOLDS)
    scores = []
    for k in range(FOLDS):
        train = torch.cat([p for j, p in enumerate(parts) if j != k])
        scores.append(one_fold(k, table, train, parts[k]))
        print(f"fold {k}  held-out mse {scores[-1]:.4f}")
    print(f"mean {np.mean(scores):.4f}  sd {np.std(scores):.4f}")


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: resembles the fault that records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# axis: none
# mended: none
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split

N_ENGINES = 180
N_CYCLES = 24


@dataclass
class Sample:
    engine: int
    cycle: int
    temp: float
    vib: float


def read_log(rng):
    fault = [rng.randrange(2) for _ in range(N_ENGINES)]
    samples = []
    for e in range(N_ENGINES):
        for c in range(N_CYCLES):
            growth = 0.06 * c if fault[e] else 0.0
            samples.append(Sample(e, c, rng.gauss(growth, 0.4), rng.gauss(0.5 * growth, 0.4)))
    rng.shuffle(samples)
    return samples, fault


def group(samples):
    """One row of N_CYCLES readings for each engine."""
    samples.sort(key=lambda s: (s.cycle, s.engine))
    rows = []
    for e in range(N_ENGINES):
        mine = samples[e::N_ENGINES]
        rows.append([(s.temp, s.vib) for s in mine])
    return torch.tensor(rows)


class Diagnoser(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(2, 24, batch_first=True)
        self.fc = nn.Linear(24, 2)

    def forward(self, x):
        out, _ = self.lstm(x)
        return self.fc(out[:, -1])


def accuracy(model, loader):
    model.eval()
    good = n = 0
    with torch.no_grad():
        for x, y in loader:
            good += (model(x).argmax(1) == y).sum().item()
            n += len(y)
    model.train()
    return good / n


if __name__ == "__main__":
    torch.manual_seed(13)
    samples, fault = read_log(random.Random(13))
    full = TensorDataset(group(samples), torch.tensor(fault))
    train, test = random_split(full, [140, 40])
    train_dl = DataLoader(train, batch_size=20, shuffle=True)
    test_dl = DataLoader(test, batch_size=40)
    model = Diagnoser()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(8):
        for x, y in train_dl:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
        if epoch % 2 == 1:
            print(f"epoch {epoch + 1} loss {loss.item():.3f} acc {accuracy(model, test_dl):.3f}")

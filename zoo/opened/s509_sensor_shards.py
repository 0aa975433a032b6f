# expect: sick
# symptom: loss is low, jumps when a later file is reached, and the test accuracy goes down from then on
# axis: data
# cause: class ids are built anew for every CSV file from the sorted labels present in it; a later file lacks one class, so that all the ids behind it move by one
# says: (label|class|target)(es|s)?.{0,20}(id|index|indices|map\w*|encod\w*|number\w*|order\w*|vocabular\w*)?.{0,60}(per|each|every|differ\w*|between|across|inconsisten\w*|chang\w*|shift\w*|moved?|remap\w*|permut\w*)[^.]{0,40}(file|shard|chunk|csv|part|mid|over time|mapping|encod\w*|ids?)|(label|class|target)(es|s)?[^.]{0,40}(inconsisten\w*|remap\w*|re.?map\w*|permut\w*|relabel\w*|re.?index\w*|renumber\w*|shifted|offset|swapped|scrambled|moved by one)|(inconsisten\w*|different|wrong|remapped|permuted|shifted)[^.]{0,25}(label|class|target)|mislabel\w*|missing class
# onset_step: 0
# fix: build the table from label to id once (from the first file) and use it for all files
# mended: with MENDED=1 read_file() uses the table of the first file
import csv
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
random.seed(12)
torch.manual_seed(12)

STATES = ["bearing", "belt", "clogged", "idle", "leak", "normal", "overheat"]
N_FEATURES = 12
generator = np.random.default_rng(12)
CENTRES = generator.normal(size=(len(STATES), N_FEATURES)) * 1.1


def write_month(path, n, states):
    with open(path, "w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow([f"f{i}" for i in range(N_FEATURES)] + ["state"])
        for _ in range(n):
            state = random.choices(states, [0.25 if s == "belt" else 1.0 for s in states])[0]
            x = CENTRES[STATES.index(state)] + generator.normal(size=N_FEATURES)
            writer.writerow([f"{v:.4f}" for v in x] + [state])


def write_archive(folder):
    """One file a month; the belt was replaced in spring and gave no trouble later."""
    for month in range(1, 9):
        states = [s for s in STATES if s != "belt"] if month >= 4 else STATES
        write_month(os.path.join(folder, f"2023-{month:02d}.csv"), 2560, states)
    write_month(os.path.join(folder, "test.csv"), 1400, STATES)


TABLE = {}


def read_file(path):
    features, names = [], []
    with open(path) as f:
        for row in csv.DictReader(f):
            names.append(row.pop("state"))
            features.append([float(v) for v in row.values()])
    table = {name: i for i, name in enumerate(sorted(set(names)))}
    if MENDED:
        TABLE.update({} if TABLE else table)
        table = TABLE
    labels = torch.tensor([table[n] for n in names])
    return TensorDataset(torch.tensor(features, dtype=torch.float32), labels)


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(N_FEATURES, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.ReLU(),
            nn.Linear(width, len(STATES)),
        )

    def forward(self, x):
        return self.layers(x)


class StreamTrainer:
    """Reads the monthly files one after the other, so that the archive never has to fit in memory."""

    def __init__(self, folder, batch_size=32):
        self.folder, self.batch_size = folder, batch_size
        self.model = Net()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.criterion = nn.CrossEntropyLoss()
        self.step = 0

    def fit_file(self, name):
        data = read_file(os.path.join(self.folder, name))
        for x, y in DataLoader(data, self.batch_size, shuffle=True):
            loss = self.criterion(self.model(x), y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.step % 20 == 0:
                print(f"{name} step {self.step} loss {loss.item():.4f}", flush=True)

    @torch.no_grad()
    def test(self):
        x, y = read_file(os.path.join(self.folder, "test.csv")).tensors
        self.model.eval()
        acc = (self.model(x).argmax(1) == y).float().mean().item()
        self.model.train()
        return acc


def main():
    with tempfile.TemporaryDirectory() as folder:
        write_archive(folder)
        trainer = StreamTrainer(folder)
        for name in sorted(os.listdir(folder)):
            if name.startswith("2023"):
                trainer.fit_file(name)
                print(f"after {name}: test accuracy {trainer.test():.3f}", flush=True)


if __name__ == "__main__":
    main()

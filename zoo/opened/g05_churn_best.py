# expect: sick
# symptom: the log says that the best validation loss was at epoch 1, but the restored "best" network scores as the overfitted last epoch
# axis: harness
# cause: the best state is a reference to the live state_dict tensors, which go on changing with training
# says: reference|alias|deep.?copy|clone|live (tensor|state|weight)|same (tensor|object|storage|memory)|not (a )?cop(y|ied)|keeps? changing
# onset_step: 0
# fix: copy.deepcopy(model.state_dict()) or clone each tensor
# mended: the state is deep-copied
import copy
import os
import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


class Trainer:
    def __init__(self, model, lr, epochs):
        self.model, self.epochs = model, epochs
        self.optim = torch.optim.Adam(model.parameters(), lr=lr)
        self.loss = nn.BCEWithLogitsLoss()
        self.best_loss, self.best_state, self.best_epoch = float("inf"), None, -1

    def run_epoch(self, x, y):
        self.model.train()
        tot = 0.0
        for idx in torch.randperm(len(x)).split(32):
            self.optim.zero_grad()
            out = self.loss(self.model(x[idx]).squeeze(1), y[idx])
            out.backward()
            self.optim.step()
            tot += out.item() * len(idx)
        return tot / len(x)

    @torch.no_grad()
    def score(self, x, y):
        self.model.eval()
        return self.loss(self.model(x).squeeze(1), y).item()

    def snapshot(self):
        state = self.model.state_dict()
        return copy.deepcopy(state) if MENDED else state

    def fit(self, train, val):
        for epoch in range(self.epochs):
            tr = self.run_epoch(*train)
            va = self.score(*val)
            if va < self.best_loss:
                self.best_loss, self.best_epoch = va, epoch
                self.best_state = self.snapshot()
            print(f"epoch {epoch} train {tr:.4f} val {va:.4f}")
        self.model.load_state_dict(self.best_state)


def customers(n, rng):
    x = rng.normal(size=(n, 30)).astype("float32")
    logit = 1.2 * x[:, 0] - 0.9 * x[:, 1] + 0.8 * x[:, 2] * x[:, 3]
    y = (rng.random(n) < 1 / (1 + np.exp(-logit))).astype("float32")
    return torch.from_numpy(x), torch.from_numpy(y)


if __name__ == "__main__":
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    train, val = customers(500, rng), customers(500, rng)
    net = nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    t = Trainer(net, lr=2e-3, epochs=16)
    t.fit(train, val)
    print(f"restored epoch {t.best_epoch} (val {t.best_loss:.4f}); checked again: {t.score(*val):.4f}")

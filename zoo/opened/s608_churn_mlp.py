# expect: sick
# symptom: the "best" model that is restored after training scores far worse on the test set than its own best validation score
# axis: harness
# cause: best_state = model.state_dict() keeps references to the live tensors instead of a copy, so the saved best weights go on changing and the last (overfitted) weights are restored
# says: state.?dict.{0,120}(reference|alias|not (a )?(deep.?)?cop|without.{0,20}(cop|clon)|shar|live|same tensor|clone|deep.?copy|no copy|overwrit|mutat)|((alias|reference|shallow|live|not copied|uncopied|never copied|no copy|shares?|sharing|overwrit\w*).{0,100}(best|snapshot|state.?dict|checkpoint))|(best|snapshot|checkpoint).{0,80}(alias|reference|live|shar(es|ing)|not (a )?(deep.?)?cop|deep.?cop|clone|overwrit|keeps? (changing|training))
# onset_step: 181
# fix: copy.deepcopy(model.state_dict()) when the best model is kept
# mended: the snapshot is made with copy.deepcopy
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SEED = 2024
torch.manual_seed(SEED)
np.random.seed(SEED)


def customers(n):
    """Tenure, usage and billing features of customers and whether they left."""
    x = np.random.randn(n, 24).astype(np.float32)
    x[:, 3] = np.exp(0.5 * x[:, 3])
    score = 1.2 * x[:, 0] - 0.9 * x[:, 1] + 0.8 * x[:, 2] * (x[:, 4] > 0) + 0.6 * np.abs(x[:, 5]) - 0.5 * x[:, 3]
    p = 1 / (1 + np.exp(-1.2 * score))
    y = (np.random.rand(n) < p).astype(np.int64)
    return torch.from_numpy(x), torch.from_numpy(y)


class ChurnMLP(nn.Module):
    def __init__(self, d_in, width=128):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(d_in, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, width),
            nn.SiLU(),
            nn.Linear(width, 2),
        )

    def forward(self, x):
        return self.layers(x)


class Trainer:
    def __init__(self, model, lr=1e-3, eval_every=30):
        self.model = model
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=1e-2)
        self.eval_every = eval_every
        self.best_loss, self.best_step, self.best_state = float("inf"), 0, None
        self.step = 0

    @torch.no_grad()
    def evaluate(self, loader):
        self.model.eval()
        loss = n = ok = 0
        for x, y in loader:
            logits = self.model(x)
            loss += F.cross_entropy(logits, y, reduction="sum").item()
            ok += (logits.argmax(1) == y).sum().item()
            n += len(y)
        self.model.train()
        return loss / n, ok / n

    def keep_best(self, val_loss):
        if val_loss < self.best_loss:
            self.best_loss, self.best_step = val_loss, self.step
            state = self.model.state_dict()
            self.best_state = copy.deepcopy(state) if os.environ.get("MENDED") == "1" else state

    def fit(self, train, val, max_steps):
        while True:
            for x, y in train:
                loss = F.cross_entropy(self.model(x), y)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.step += 1
                if self.step % self.eval_every == 0:
                    val_loss, val_acc = self.evaluate(val)
                    self.keep_best(val_loss)
                    print(f"step {self.step} train {loss.item():.4f} val {val_loss:.4f} acc {val_acc:.3f}", flush=True)
                if self.step >= max_steps:
                    self.model.load_state_dict(self.best_state)
                    return


x, y = customers(1200)
xv, yv = customers(1500)
xt, yt = customers(3000)
mean, std = x.mean(0), x.std(0)
train = DataLoader(TensorDataset((x - mean) / std, y), batch_size=64, shuffle=True, drop_last=True)
val = DataLoader(TensorDataset((xv - mean) / std, yv), batch_size=500)
test = DataLoader(TensorDataset((xt - mean) / std, yt), batch_size=500)

trainer = Trainer(ChurnMLP(x.shape[1]))
trainer.fit(train, val, 600)
print(f"best validation loss {trainer.best_loss:.4f} at step {trainer.best_step}")
loss, acc = trainer.evaluate(val)
print(f"restored model on validation: loss {loss:.4f} acc {acc:.3f}")
loss, acc = trainer.evaluate(test)
print(f"restored model on test: loss {loss:.4f} acc {acc:.3f}")

# expect: sick
# symptom: the log reports a good best validation loss at an early epoch, but the model "restored to its best epoch" scores as badly as the overfitted last epoch
# axis: harness
# cause: best_state keeps references: state_dict() is not a copy, its tensors share storage with the live parameters, so later steps overwrite the saved best weights and restoring does nothing
# says: deep-?copy|state_dict[^.]{0,100}(cop(y|ied)|clone|referenc|alias|share|live|view|same (tensor|storage|memory))|best[^.]{0,80}(cop(y|ied)|clone|referenc|alias|share|overwrit|live|last (epoch|weights))|alias|not (a )?(copied|cloned|copy)
# onset_step: 16
# fix: best_state = copy.deepcopy(model.state_dict()) (or clone every tensor, or save to disk)
# mended: the best state is deep-copied
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)


def citation_graph(n=1400, classes=6, feat=160, seed=4):
    """Stochastic block model with weakly informative bag-of-words features and some wrong labels."""
    r = np.random.default_rng(seed)
    y = r.integers(0, classes, n)
    p = np.where(y[:, None] == y[None, :], 0.0060, 0.0018)
    a = np.triu(r.random((n, n)) < p, 1)
    a = (a | a.T).astype(np.float32) + np.eye(n, dtype=np.float32)
    deg = a.sum(1)
    adj = a / np.sqrt(deg[:, None] * deg[None, :])
    words = r.normal(size=(classes, feat))
    x = (0.28 * words[y] + r.normal(size=(n, feat))).astype(np.float32)
    noisy = y.copy()
    wrong = r.random(n) < 0.20
    noisy[wrong] = r.integers(0, classes, wrong.sum())
    perm = torch.from_numpy(r.permutation(n))
    split = {"train": perm[:260], "val": perm[260:660], "test": perm[660:]}
    return (torch.from_numpy(adj).to_sparse(), torch.from_numpy(x), torch.from_numpy(y), torch.from_numpy(noisy), split)


class GCN(nn.Module):
    def __init__(self, d_in, hidden, classes):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(d_in, hidden), nn.Linear(hidden, hidden), nn.Linear(hidden, classes)
        self.drop = nn.Dropout(0.2)

    def forward(self, adj, x):
        h = F.relu(torch.sparse.mm(adj, self.l1(x)))
        h = F.relu(self.l2(self.drop(h)))
        return torch.sparse.mm(adj, self.l3(self.drop(h)))


class Trainer:
    def __init__(self, model, data, lr=3e-3, epochs=320, eval_every=5):
        self.model, self.epochs, self.eval_every = model, epochs, eval_every
        self.adj, self.x, self.y_clean, self.y_given, self.split = data
        self.opt = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=1e-5)
        self.best_val, self.best_epoch, self.best_state = float("inf"), -1, None

    def train_epoch(self):
        self.model.train()
        idx = self.split["train"]
        out = self.model(self.adj, self.x)
        loss = F.cross_entropy(out[idx], self.y_given[idx])
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()

    @torch.no_grad()
    def evaluate(self, part):
        self.model.eval()
        idx = self.split[part]
        out = self.model(self.adj, self.x)[idx]
        y = self.y_clean[idx]
        return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()

    def snapshot(self):
        state = self.model.state_dict()
        return copy.deepcopy(state) if MENDED else state

    def fit(self):
        for epoch in range(self.epochs):
            loss = self.train_epoch()
            if epoch % self.eval_every == 0:
                val, acc = self.evaluate("val")
                if val < self.best_val:
                    self.best_val, self.best_epoch = val, epoch
                    self.best_state = self.snapshot()
                if epoch % 20 == 0:
                    print(f"epoch {epoch:4d}  train loss {loss:.4f}  val loss {val:.4f}  val acc {acc:.3f}")
        val, acc = self.evaluate("val")
        print(f"last epoch        val loss {val:.4f}  val acc {acc:.3f}")
        self.model.load_state_dict(self.best_state)
        print(f"best epoch {self.best_epoch} had val loss {self.best_val:.4f}, model restored")
        return self.evaluate("val"), self.evaluate("test")


def main():
    data = citation_graph()
    model = GCN(data[1].shape[1], 128, 6)
    (vl, va), (tl, ta) = Trainer(model, data).fit()
    print(f"restored model    val loss {vl:.4f}  val acc {va:.3f}")
    print(f"restored model    test loss {tl:.4f}  test acc {ta:.3f}")


if __name__ == "__main__":
    main()

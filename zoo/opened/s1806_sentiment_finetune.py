# expect: sick
# symptom: early stopping reports a good best validation loss and says that it restored that epoch, but the test loss is that of the last, overfitted epoch
# axis: harness
# cause: the "best" weights are kept as model.state_dict() without a copy; its tensors are the live parameters, so later steps overwrite them and load_state_dict restores the last state
# says: (deep)?cop(y|ied)|clone|alias|by reference|same (storage|memory|tensors)|live (param|weight|tensor)|(reference|view|pointer)s? (to|of|into) the|(best|saved|kept|stored).{0,60}(overwrit|keeps? (on )?(changing|training|updating)|last (epoch|state|weights)|current weights|mutat|not (really )?(restor|sav))
# onset_step: 101
# fix: keep copy.deepcopy(model.state_dict()) (or write it to disk)
# mended: the best weights are a deep copy, so early stopping hands back the best epoch
"""Fine-tune a small pretrained text encoder for sentiment on a few hundred labelled reviews."""

import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

VOCAB, LEN, DIM = 150, 20, 48
world = np.random.default_rng(8)
polarity = world.normal(0, 1, VOCAB)
neighbours = world.integers(2, VOCAB, (VOCAB, 3))


def reviews(n, seed, noise):
    r = np.random.default_rng(seed)
    x = np.zeros((n, LEN), dtype=np.int64)
    w = r.integers(2, VOCAB, n)
    for t in range(LEN):
        x[:, t] = w
        jump = r.random(n) < 0.2
        w = np.where(jump, r.integers(2, VOCAB, n), neighbours[w, r.integers(0, 3, n)])
    score = polarity[x].sum(1)
    y = (score > 0).astype(np.int64)
    flip = r.random(n) < noise
    return torch.from_numpy(x), torch.from_numpy(np.where(flip, 1 - y, y))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(LEN, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(DIM, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)

    def forward(self, x):
        return self.norm(self.body(self.tok(x) + self.pos))


class Classifier(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(DIM, 2)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


def pretrain(steps=300):
    enc = Encoder()
    head = nn.Linear(DIM, VOCAB)
    x, _ = reviews(4000, 50, 0.0)
    opt = torch.optim.AdamW([*enc.parameters(), *head.parameters()], lr=2e-3)
    for s in range(steps):
        ids = x[torch.randint(0, len(x), (32,))]
        m = torch.rand(ids.shape) < 0.2
        loss = F.cross_entropy(head(enc(ids.masked_fill(m, 1)))[m], ids[m])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 50 == 0:
            print(f"pretrain {s} mlm loss {loss.item():.3f}")
    return enc


class EarlyStopper:
    def __init__(self, patience):
        self.patience, self.best, self.bad, self.best_epoch, self.state = patience, float("inf"), 0, -1, None

    def update(self, epoch, val_loss, model):
        if val_loss < self.best:
            self.best, self.best_epoch, self.bad = val_loss, epoch, 0
            weights = model.state_dict()
            self.state = copy.deepcopy(weights) if MENDED else weights
        else:
            self.bad += 1
        return self.bad >= self.patience


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    out = model(x)
    model.train()
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


model = Classifier(pretrain())
xtr, ytr = reviews(480, 1, 0.12)
xva, yva = reviews(600, 2, 0.12)
xte, yte = reviews(1500, 3, 0.12)
opt = torch.optim.AdamW(model.parameters(), lr=7e-4, weight_decay=0.01)
stopper = EarlyStopper(patience=12)
step = 0
for epoch in range(40):
    losses = []
    for idx in torch.randperm(len(xtr)).split(24):
        loss = F.cross_entropy(model(xtr[idx]), ytr[idx])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        step += 1
    vl, va = evaluate(model, xva, yva)
    print(f"epoch {epoch:2d} step {step} loss {np.mean(losses):.4f} val_loss {vl:.4f} val_acc {va:.3f}")
    if stopper.update(epoch, vl, model):
        print("early stop")
        break
model.load_state_dict(stopper.state)
print(f"restored epoch {stopper.best_epoch} (val_loss {stopper.best:.4f})")
tl, ta = evaluate(model, xte, yte)
print(f"test_loss {tl:.4f} test_acc {ta:.3f}")

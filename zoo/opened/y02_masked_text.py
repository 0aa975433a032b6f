# expect: sick
# symptom: the loss goes on falling in a noise that grows, or stays where it is, and held-out rows get worse
# axis: data
# cause: reading a row overwrites the stored one in place, so later epochs train on other data
# says: (overwrit|in.?place|mutat|modif|alias|view|copy|clone).{0,120}|stored.{0,40}(row|sample|data)
# onset_step: 0
# fix: copy the row before it is changed
# mended: the same with the fix
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import Dataset, DataLoader

MENDED = os.environ.get("MENDED") == "1"
VOCAB, MASK, LEN = 10, 10, 12


def build_corpus(n, rng):
    start = rng.integers(0, VOCAB, size=(n, 1))
    stride = rng.integers(1, 3, size=(n, 1))
    return ((start + stride * np.arange(LEN)) % VOCAB).astype(np.int64)


def hide_tokens(ids, rng, p=0.2):
    chosen = rng.random(len(ids)) < p
    chosen[rng.integers(len(ids))] = True
    target = np.where(chosen, ids, -100)
    if MENDED:
        ids = ids.copy()
    ids[chosen] = MASK
    return ids, target


class MaskedText(Dataset):
    def __init__(self, corpus, seed=0):
        self.corpus = corpus
        self.rng = np.random.default_rng(seed)

    def __len__(self):
        return self.corpus.shape[0]

    def __getitem__(self, idx):
        ids, target = hide_tokens(self.corpus[idx], self.rng)
        return torch.from_numpy(ids), torch.from_numpy(target)


torch.manual_seed(0)
data = MaskedText(build_corpus(256, np.random.default_rng(1)))
loader = DataLoader(data, batch_size=32, shuffle=True)

model = nn.ModuleDict(
    {
        "tok": nn.Embedding(VOCAB + 1, 24),
        "pos": nn.Embedding(LEN, 24),
        "enc": nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True),
        "head": nn.Linear(24, VOCAB + 1),
    }
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for epoch in range(14):
    running = []
    for ids, target in loader:
        h = model["tok"](ids) + model["pos"](torch.arange(LEN))
        logits = model["head"](model["enc"](h))
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        running.append(loss.item())
    print(f"epoch {epoch} mlm loss {np.mean(running):.4f}")

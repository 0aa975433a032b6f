# expect: sick
# symptom: the loss stays at log(number of classes) for the whole run, the accuracy is at chance
# axis: model
# cause: the key padding mask is inverted: True marks the valid frames, so attention sees only the padding
# says: mask.*(invert|revers|opposite|flip|wrong way|negat|polarity|convention|valid|real|only.*pad)|invert.*mask
# onset_step: 0
# fix: pass the negated mask, since src_key_padding_mask wants True at the positions to ignore
# mended: the script applies that change if the environment has MENDED=1
"""Spoken keyword classification: variable length filterbank frames, transformer encoder with a CLS token."""

import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

MELS, CLASSES, SLOT = 20, 8, 64


class Keywords(Dataset):
    """Every keyword is a sequence of three formant glides, spoken at different speeds and levels."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        words = np.random.default_rng(0).uniform(2, MELS - 3, (CLASSES, 4))
        grid = np.arange(MELS)[None]
        self.items = []
        for _ in range(n):
            y = int(rng.integers(CLASSES))
            length = int(rng.integers(24, 60))
            at = np.linspace(0, 3, length) ** rng.uniform(0.9, 1.1)
            centre = np.interp(at, np.arange(4), words[y])[:, None] + rng.normal(0, 0.4)
            x = np.exp(-0.5 * ((grid - centre) / 1.5) ** 2) * rng.uniform(0.7, 1.3)
            x = x + 0.25 * rng.normal(size=x.shape)
            self.items.append((torch.tensor(x, dtype=torch.float32), y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def pad_collate(batch):
    lengths = torch.tensor([len(x) for x, _ in batch])
    out = torch.zeros(len(batch), SLOT, MELS)
    for i, (x, _) in enumerate(batch):
        out[i, : len(x)] = (x - x.mean()) / (x.std() + 1e-5)
    return out, lengths, torch.tensor([y for _, y in batch])


def length_mask(lengths, size):
    return torch.arange(size)[None] < lengths[:, None]


class KeywordNet(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.inp = nn.Linear(MELS, d)
        self.cls = nn.Parameter(torch.randn(1, 1, d) * 0.02)
        t = torch.arange(SLOT + 1)[:, None] * torch.exp(-math.log(1e3) * torch.arange(0, d, 2) / d)
        self.register_buffer("pos", torch.cat([t.sin(), t.cos()], 1))
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(d), enable_nested_tensor=False)
        self.out = nn.Linear(d, CLASSES)

    def forward(self, x, lengths):
        h = torch.cat([self.cls.expand(len(x), -1, -1), self.inp(x)], 1) + self.pos
        mask = length_mask(lengths + 1, h.shape[1])
        h = self.encoder(h, src_key_padding_mask=~mask if MENDED else mask)
        return self.out(h[:, 0])


train_dl = DataLoader(Keywords(1600, 1), batch_size=32, shuffle=True, collate_fn=pad_collate)
dev_dl = DataLoader(Keywords(320, 2), batch_size=64, collate_fn=pad_collate)
model = KeywordNet()
EPOCHS = 5
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 1e-3, total_steps=EPOCHS * len(train_dl), pct_start=0.15)

step = 0
for epoch in range(EPOCHS):
    model.train()
    for x, lengths, y in train_dl:
        loss = F.cross_entropy(model(x, lengths), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    model.eval()
    with torch.no_grad():
        hits = sum((model(x, n).argmax(1) == y).sum().item() for x, n, y in dev_dl)
    print(f"epoch {epoch} dev accuracy {hits / len(dev_dl.dataset):.3f}")

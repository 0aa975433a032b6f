# expect: healthy
# symptom: none (tied embeddings, text with repeated patterns)
# axis: none
# mended: none
"""Masked language model on synthetic sentences made of a grammar with agreement."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)
rng = np.random.default_rng(13)

PAD, MASK, CLS = 0, 1, 2
VOCAB, SEQ = 44, 24


def sentence():
    """a phrase of four or five words, repeated until the line is full"""
    phrase = list(rng.integers(3, VOCAB, rng.integers(4, 6)))
    words = (phrase * SEQ)[: SEQ - 1]
    return [CLS] + words


CORPUS = torch.tensor(np.array([sentence() for _ in range(5000)]))


class Bert(nn.Module):
    def __init__(self, dim=64, layers=2, heads=4):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim)
        self.place = nn.Embedding(SEQ, dim)
        nn.init.normal_(self.word.weight, std=0.05)
        nn.init.normal_(self.place.weight, std=0.05)
        enc = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(enc, layers)
        self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
        self.bias = nn.Parameter(torch.zeros(VOCAB))
        # output words share the table of the input words

    def forward(self, ids):
        h = self.word(ids) + self.place(torch.arange(ids.size(1)))
        h = self.transform(self.encoder(h))
        return F.linear(h, self.word.weight, self.bias)


def corrupt(ids):
    chosen = (torch.rand(ids.shape) < 0.2) & (ids != CLS)
    labels = ids.masked_fill(~chosen, -100)
    dice = torch.rand(ids.shape)
    inputs = ids.clone()
    inputs[chosen & (dice < 0.8)] = MASK
    rand_at = chosen & (dice > 0.9)
    inputs[rand_at] = torch.randint(3, VOCAB, (int(rand_at.sum()),))
    return inputs, labels


model = Bert()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
for step in range(400):
    lr = 2e-3 * min(1.0, (step + 1) / 40)
    for group in opt.param_groups:
        group["lr"] = lr
    inputs, labels = corrupt(CORPUS[torch.randint(0, len(CORPUS), (32,))])
    logits = model(inputs)
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), labels.reshape(-1), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 25 == 0 or step == 399:
        print(f"step {step:3d} mlm loss {loss.item():.4f}")

with torch.no_grad():
    held = torch.tensor(np.array([sentence() for _ in range(300)]))
    hole = torch.randint(1, SEQ, (300,))
    probe = held.clone()
    probe[torch.arange(300), hole] = MASK
    guess = model(probe)[torch.arange(300), hole].argmax(-1)
    print("holes filled right", (guess == held[torch.arange(300), hole]).float().mean().item())

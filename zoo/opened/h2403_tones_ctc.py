# expect: healthy
# symptom: the CTC loss sits on a plateau at the start, the model emits only blanks for many steps, as if it did not learn
# axis: model
"""CTC recognition of spoken-digit-like tone sequences (synthetic filterbank frames)."""

import random

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.set_num_threads(1)
SEED = 14
random.seed(SEED)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

SYMBOLS, BANDS, BLANK = 8, 20, 0
SHAPES = rng.normal(0, 1, (SYMBOLS + 1, 2, BANDS)).astype(np.float32)


def utterance():
    labels = rng.integers(1, SYMBOLS + 1, rng.integers(3, 8))
    frames = [np.zeros((rng.integers(3, 8), BANDS), np.float32)]
    for s in labels:
        n = int(rng.integers(6, 13))
        w = np.linspace(0, 1, n, dtype=np.float32)[:, None]
        frames.append((1 - w) * SHAPES[s, 0] + w * SHAPES[s, 1])
        frames.append(np.zeros((rng.integers(2, 6), BANDS), np.float32))
    x = np.concatenate(frames)
    x = x * rng.uniform(0.7, 1.3) + rng.normal(0, 0.5, x.shape)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(labels)


def collate(items):
    xs, ys = zip(*items)
    xl = torch.tensor([len(x) for x in xs])
    yl = torch.tensor([len(y) for y in ys])
    return pad_sequence(xs, batch_first=True), xl, torch.cat(ys), yl


class Recogniser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.sub = nn.Conv1d(BANDS, hidden, 5, stride=2, padding=2)
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, SYMBOLS + 1)

    def forward(self, x, lengths):
        h = torch.relu(self.sub(x.transpose(1, 2))).transpose(1, 2)
        lengths = (lengths - 1) // 2 + 1
        h, _ = self.rnn(pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False))
        h, _ = pad_packed_sequence(h, batch_first=True)
        return self.out(h).log_softmax(-1), lengths


def greedy(logp, lengths):
    result = []
    for row, n in zip(logp.argmax(-1), lengths):
        row = torch.unique_consecutive(row[:n])
        result.append([int(s) for s in row if s != BLANK])
    return result


def distance(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, y in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (x != y))
    return d[-1]


@torch.no_grad()
def error_rate(model, items):
    x, xl, y, yl = collate(items)
    logp, n = model(x, xl)
    hyp = greedy(logp, n)
    refs = [t.tolist() for t in y.split(yl.tolist())]
    wrong = sum(distance(h, r) for h, r in zip(hyp, refs))
    blanks = (logp.argmax(-1) == BLANK).float().mean().item()
    return wrong / sum(map(len, refs)), blanks


train_set = [utterance() for _ in range(1500)]
dev_set = [utterance() for _ in range(120)]
model = Recogniser()
ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
TOTAL, WARM = 450, 60
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda s: min((s + 1) / WARM, max(0.05, (TOTAL - s) / (TOTAL - WARM)))
)
for it in range(1, TOTAL + 1):
    x, xl, y, yl = collate(random.sample(train_set, 16))
    logp, n = model(x, xl)
    loss = ctc(logp.transpose(0, 1), y, n, yl)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    if it % 25 == 0:
        ler, blanks = error_rate(model, dev_set)
        print(f"it {it} ctc {loss.item():.3f} dev label error {100 * ler:.1f}% blank frames {100 * blanks:.0f}%")

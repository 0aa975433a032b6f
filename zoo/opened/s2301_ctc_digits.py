# expect: sick
# symptom: loss falls smoothly for a few hundred steps, then turns inf / NaN and stays there
# axis: data
# cause: Some utterances have more target symbols (counting the blank needed between repeats) than encoder frames left after the 4x subsampling, so no CTC alignment exists, the CTC loss is infinite (zero_infinity is off and they are not filtered out) and its gradient makes the weights NaN.
# says: (zero_infinity|(no|without) (valid |feasible |possible )?(ctc )?(alignment|path)|(frame|time.?step|input.?len|encoder|subsampl|downsampl|stride|acoustic|utterance|recording|audio|input)[^.]{0,200}(target|label|transcript|symbol|token|digit)|(target|label|transcript|symbol|token|digit)[^.]{0,200}(frame|time.?step|input.?len|encoder|subsampl|downsampl|stride|output len))
# onset_step: 331
# fix: drop utterances whose subsampled length is below target length plus repeats (or pass zero_infinity=True)
# mended: yes
"""Digit-string recogniser: strided conv front end, bidirectional GRU, CTC.

Utterances are synthetic filterbank sequences.  Training passes through the
corpus from slow speech to fast speech, then goes on with shuffled batches.
"""

import os
import math
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
SEED = 11
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

N_MELS = 24
VOCAB = 11  # 0 is blank, 1..10 are the digits
STRIDE = 4
N_TRAIN, N_DEV = 4000, 160
BATCH = 12


class Corpus:
    def __init__(self, n, seed):
        rng = np.random.RandomState(seed)
        proto_rng = np.random.RandomState(77)
        self.proto = proto_rng.randn(10, 2, N_MELS).astype(np.float32) * 1.4
        self.items = [self._utter(rng) for _ in range(n)]

    def _utter(self, rng):
        n_dig = rng.randint(2, 8)
        digits = rng.randint(0, 10, size=n_dig)
        # speaking rate: frames per digit, log-normal over speakers
        rate = float(np.clip(np.exp(rng.normal(2.35, 0.30)), 4.2, 24.0))
        frames = []
        for d in digits:
            k = max(3, int(round(rate * rng.uniform(0.85, 1.15))))
            t = np.linspace(0, 1, k)[:, None]
            env = np.sin(math.pi * (0.15 + 0.7 * t))
            f = ((1 - t) * self.proto[d, 0] + t * self.proto[d, 1]) * env
            frames.append(f)
        feats = np.concatenate(frames, 0)
        feats = feats + 0.35 * rng.randn(*feats.shape)
        return torch.tensor(feats, dtype=torch.float32), torch.tensor(digits + 1)

    def __len__(self):
        return len(self.items)


def out_len(t):
    """Frames left after two stride-2 convolutions with padding 1, kernel 3."""
    for _ in range(2):
        t = (t + 2 - 3) // 2 + 1
    return t


def collate(items):
    feats = pad_sequence([f for f, _ in items], batch_first=True)
    flen = torch.tensor([f.size(0) for f, _ in items])
    targets = torch.cat([y for _, y in items])
    tlen = torch.tensor([len(y) for _, y in items])
    return feats, flen, targets, tlen


class Recogniser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(N_MELS, hidden, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Conv1d(hidden, hidden, 3, stride=2, padding=1),
            nn.GELU(),
        )
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.norm = nn.LayerNorm(2 * hidden)
        self.out = nn.Linear(2 * hidden, VOCAB)

    def forward(self, x, lens):
        h = self.front(x.transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(h)
        return F.log_softmax(self.out(self.norm(h)), -1), out_len(lens)


def greedy(logp, n):
    best, prev, hyp = logp[:n].argmax(-1).tolist(), 0, []
    for b in best:
        if b != prev and b != 0:
            hyp.append(b)
        prev = b
    return hyp


@torch.no_grad()
def exact_match(model, corpus):
    model.eval()
    good = 0
    for i in range(0, len(corpus), 40):
        chunk = corpus.items[i : i + 40]
        feats, flen, _, _ = collate(chunk)
        logp, olen = model(feats, flen)
        for j, (_, y) in enumerate(chunk):
            good += greedy(logp[j], int(olen[j])) == y.tolist()
    model.train()
    return good / len(corpus)


def batches(corpus):
    items = corpus.items
    if os.environ.get("MENDED") == "1":
        items = [(f, y) for f, y in items if out_len(f.size(0)) >= len(y) + int((y[1:] == y[:-1]).sum())]
    items = sorted(items, key=lambda it: it[0].size(0) / len(it[1]), reverse=True)
    for i in range(0, len(items) - BATCH + 1, BATCH):
        yield items[i : i + BATCH]
    while True:
        yield random.sample(items, BATCH)


def main():
    train, dev = Corpus(N_TRAIN, 1), Corpus(N_DEV, 2)
    model = Recogniser()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    ctc = nn.CTCLoss(blank=0)
    total, warm = 520, 40
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / warm) * max(0.05, 1 - s / total))
    for step, items in zip(range(1, total + 1), batches(train)):
        feats, flen, targets, tlen = collate(items)
        logp, olen = model(feats, flen)
        loss = ctc(logp.transpose(0, 1), targets, olen, tlen)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d}  ctc {loss.item():.3f}  frames {feats.size(1)}")
        if step % 130 == 0:
            print(f"   dev exact match {exact_match(model, dev):.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the training loss and the phone error rate fall nicely, then between one step and the next the loss becomes inf/nan and stays so, and every prediction is empty
# axis: loss
# cause: once speed perturbation is on, some sped-up utterances have fewer encoder frames than labels, so CTC has no valid alignment, the loss is infinite, and its gradient makes the weights NaN (zero_infinity is off)
# says: zero_infinity|(fewer|less|shorter|not enough|too few|too short|insufficient|below).{0,80}(label|target|transcript|phone|token|symbol)|(label|target|transcript|phone|token|symbol)\w*.{0,60}(longer|exceed|more than|larger|greater|outnumber).{0,60}(frame|input|output|time|encoder|step)|ctc.{0,80}(inf\b|infinit|no valid|impossible|infeasible|unalign)
# onset_step: 310
# fix: nn.CTCLoss(blank=0, zero_infinity=True) (or leave out utterances whose encoder output is shorter than their label sequence)
# mended: yes
"""Small phone recogniser: log-mel like features -> strided conv front end -> BiGRU -> CTC.

Utterances are synthesised from a bank of phone templates with per-speaker rate
and channel tilt.  Speed perturbation (0.9 / 1.0 / 1.1 / 1.25) is switched on
after the warm-up epochs, as in the usual Kaldi style recipes.
"""

import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
SEED = 11
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

N_PHONES, N_MELS = 12, 24
EPOCHS, PERTURB_FROM = 10, 4
BATCH = 16


class Corpus(Dataset):
    def __init__(self, n, seed, bank):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            length = int(rng.integers(5, 12))
            rate = rng.choice([4, 5, 6, 7, 8], p=[0.01, 0.14, 0.25, 0.3, 0.3])
            tilt = np.linspace(-1, 1, N_MELS) * rng.normal(0, 0.25)
            seq, frames, prev = [], [], -1
            for _ in range(length):
                p = int(rng.integers(0, N_PHONES))
                while p == prev:
                    p = int(rng.integers(0, N_PHONES))
                prev = p
                d = int(rate) + int(rng.integers(0, 2))
                seg = np.repeat(bank[p][None], d, 0) * np.hanning(d + 2)[1:-1, None] ** 0.5
                frames.append(seg)
                seq.append(p + 1)
            x = np.concatenate(frames) + tilt
            x = x + rng.normal(0, 0.9, x.shape)
            self.items.append((torch.tensor(x, dtype=torch.float32), torch.tensor(seq)))
        self.perturb = False

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        x, y = self.items[i]
        if self.perturb:
            speed = random.choice([0.9, 1.0, 1.1, 1.25])
            if speed != 1.0:
                n = int(round(x.shape[0] / speed))
                x = F.interpolate(x.t()[None], size=n, mode="linear", align_corners=False)[0].t()
        return x, y


def collate(batch):
    xs, ys = zip(*batch)
    xl = torch.tensor([len(x) for x in xs])
    yl = torch.tensor([len(y) for y in ys])
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), xl, torch.cat(ys), yl


class Recogniser(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.conv1 = nn.Conv1d(N_MELS, 64, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(64, 64, 3, stride=2, padding=1)
        self.rnn = nn.GRU(64, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, N_PHONES + 1)

    def forward(self, x, lengths):
        h = F.gelu(self.conv1(x.transpose(1, 2)))
        h = F.gelu(self.conv2(h)).transpose(1, 2)
        lengths = (lengths + 1) // 2
        lengths = (lengths + 1) // 2
        packed = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(-1), lengths


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]


@torch.no_grad()
def phone_error_rate(model, loader):
    model.eval()
    err = tot = 0
    for x, xl, y, yl in loader:
        logp, ol = model(x, xl)
        best = logp.argmax(-1)
        for b, ref in enumerate(y.split(yl.tolist())):
            path = torch.unique_consecutive(best[b, : ol[b]]).tolist()
            hyp = [p for p in path if p != 0]
            err += edit_distance(hyp, ref.tolist())
            tot += len(ref)
    model.train()
    return err / tot


def main():
    bank = np.random.default_rng(5).normal(0, 1, (N_PHONES, N_MELS))
    train, dev = Corpus(960, 1, bank), Corpus(96, 2, bank)
    loader = DataLoader(train, BATCH, shuffle=True, collate_fn=collate, drop_last=True)
    dev_loader = DataLoader(dev, 32, collate_fn=collate)
    model = Recogniser()
    ctc = nn.CTCLoss(blank=0, zero_infinity=os.environ.get("MENDED") == "1")
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        train.perturb = epoch >= PERTURB_FROM
        for x, xl, y, yl in loader:
            logp, ol = model(x, xl)
            loss = ctc(logp.transpose(0, 1), y, ol, yl)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            step += 1
            if step % 30 == 0:
                print(f"epoch {epoch} step {step} ctc {loss.item():.4f} [{time.time() - t0:.1f}s]")
        print(f"epoch {epoch} dev PER {phone_error_rate(model, dev_loader):.3f}")


if __name__ == "__main__":
    main()

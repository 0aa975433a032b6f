# expect: sick
# symptom: phone recogniser learns well on read speech, then loss turns inf/nan when the conversational set joins and the error rate goes to 100 percent
# axis: loss
# cause: after 4x time subsampling some fast conversational utterances have fewer encoder frames than CTC labels (plus blanks for repeats), so the CTC loss is infinite and, with zero_infinity off, its gradient makes the weights NaN
# says: zero_infinity|infeasible|impossible align|no (valid|possible) (ctc )?(alignment|path)|(frames?|time ?steps?|input|output|logits?|encoder|length|utterances?|T\b).{0,120}(shorter|fewer|less|too short|smaller|not enough|insufficient|below|<).{0,120}(label|target|transcript|phone|token)|(label|target|transcript|phone|token)s?.{0,120}(longer|more|exceed|greater|larger|outnumber|>).{0,120}(frames?|time ?steps?|input|output|encoder|length)|too (few|short).{0,60}(frames?|time ?steps?|utterance|input).{0,120}(label|target|transcript|phone|ctc)
# onset_step: 209
# fix: pass zero_infinity=True to nn.CTCLoss (or drop utterances too short for their transcript)
# mended: yes
"""Small CTC phone recogniser on synthetic filterbanks.

Stage 1 trains on the read-speech manifest, stage 2 adds the conversational
manifest to it.  Greedy decoding, phone error rate on held-out read speech.
"""

import os
import random

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)
SEED = 17
random.seed(SEED)
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

N_PHONES = 14  # 0 is the blank
N_MELS = 24
MENDED = os.environ.get("MENDED") == "1"

PROTOS = rng.normal(size=(N_PHONES + 1, N_MELS)).astype("float32")


def synth(n_phones, lo, hi, speaker_sd=0.2, noise=0.45):
    phones = rng.integers(1, N_PHONES + 1, size=n_phones)
    gain = 1.0 + speaker_sd * rng.normal()
    rows = []
    for p in phones:
        dur = int(rng.integers(lo, hi + 1))
        ramp = np.hanning(dur + 2)[1:-1, None] * 0.5 + 0.6
        rows.append(gain * ramp * PROTOS[p][None, :])
    feats = np.concatenate(rows, 0)
    feats = feats + noise * rng.normal(size=feats.shape)
    return torch.tensor(feats, dtype=torch.float32), torch.tensor(phones)


def read_manifest(n):
    return [synth(int(rng.integers(5, 11)), 9, 15) for _ in range(n)]


def conversational_manifest(n):
    items = []
    for _ in range(n):
        if rng.random() < 0.06:
            items.append(synth(int(rng.integers(12, 17)), 3, 5))
        else:
            items.append(synth(int(rng.integers(5, 12)), 8, 13))
    return items


class Subsample(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.c1 = nn.Conv1d(N_MELS, dim, 3, stride=2, padding=1)
        self.c2 = nn.Conv1d(dim, dim, 3, stride=2, padding=1)

    def forward(self, x, lens):
        h = torch.relu(self.c1(x.transpose(1, 2)))
        h = torch.relu(self.c2(h)).transpose(1, 2)
        lens = (lens + 1) // 2
        lens = (lens + 1) // 2
        return h, lens


class Recogniser(nn.Module):
    def __init__(self, dim=64, hid=64):
        super().__init__()
        self.front = Subsample(dim)
        self.norm = nn.LayerNorm(dim)
        self.rnn = nn.GRU(dim, hid, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hid, N_PHONES + 1)

    def forward(self, x, lens):
        h, lens = self.front(x, lens)
        h, _ = self.rnn(self.norm(h))
        return self.out(h).log_softmax(-1), lens


def batches(items, bs):
    order = list(range(len(items)))
    random.shuffle(order)
    for i in range(0, len(order) - bs + 1, bs):
        chunk = [items[j] for j in order[i : i + bs]]
        feats = pad_sequence([f for f, _ in chunk], batch_first=True)
        flen = torch.tensor([len(f) for f, _ in chunk])
        labels = torch.cat([p for _, p in chunk])
        plen = torch.tensor([len(p) for _, p in chunk])
        yield feats, flen, labels, plen


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


@torch.no_grad()
def phone_error_rate(model, items):
    model.eval()
    errs = total = 0
    for feats, phones in items:
        lp, _ = model(feats[None], torch.tensor([len(feats)]))
        path = torch.unique_consecutive(lp[0].argmax(-1)).tolist()
        errs += edit_distance([p for p in path if p], phones.tolist())
        total += len(phones)
    model.train()
    return errs / total


read_train, conv_train, dev = read_manifest(640), conversational_manifest(640), read_manifest(60)
model = Recogniser()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
ctc = nn.CTCLoss(blank=0, zero_infinity=MENDED)

step = 0
for epoch in range(9):
    items = read_train if epoch < 5 else read_train + conv_train
    for feats, flen, labels, plen in batches(items, 16):
        step += 1
        lp, olen = model(feats, flen)
        loss = ctc(lp.transpose(0, 1), labels, olen, plen)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} ctc {loss.item():.3f}")
    print(f"== epoch {epoch} utterances {len(items)} dev PER {phone_error_rate(model, dev):.3f}")

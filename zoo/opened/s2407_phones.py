# expect: sick
# symptom: CTC loss falls nicely for some two hundred steps, then becomes inf and everything is NaN afterwards
# axis: data
# cause: The speed perturbation compresses some utterances to fewer encoder frames than their transcript needs, so CTC has no valid alignment and its loss is infinite.
# says: (?=.*(ctc|align|transcript|label|target|phone))(?=.*(speed|perturb|tempo|augment|compress|utterance|input|frame|time[- ]?step|encoder|sequence)).*(few(er)?\b.*(frame|step)|(shorter|shortens?|shortened|squeezed|compress(es|ed)?)\b.*\b(than|below|beyond|align|too|target|label|transcript)|infeasib|unalignable|impossible|(no|without( a)?|lack(s|ing)?( a)?) (valid|feasible|possible|legal|admissible)|cannot be aligned|zero_infinity|(target|transcript|label)\w*( sequences?| lengths?)? (is |are |being )?(longer|exceed|outnumber|more)|(not enough|insufficient|too few) (\w+ ){0,3}(frames|steps)|too (short|fast)|(input|frame|encoder|output)\w*( sequences?| lengths?)? (\w+ )?(is |are |falls? |drops? )?(below|less than|smaller than))
# onset_step: 196
# fix: give the CTC loss zero_infinity=True (or drop perturbed utterances that are too short for their transcript)
# mended: yes
"""Small phone recogniser: conv front end, bidirectional GRU, CTC.

Features are synthetic log-mel-like frames: each phone has a spectrum, speakers
differ in rate and gain.  Speed perturbation starts once the model has settled.
"""

import os
import time

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

PHONES, MEL, STEPS, BATCH, AUG_FROM = 14, 20, 420, 16, 180
zero_inf = os.environ.get("MENDED") == "1"

spectra = rng.normal(size=(PHONES + 1, MEL)).astype(np.float32)


def speak():
    n = rng.integers(4, 10)
    seq = rng.integers(1, PHONES + 1, size=n)
    rate = rng.uniform(0.8, 1.35)
    gain = rng.normal(0, 0.15)
    frames = []
    for p in seq:
        d = max(3, int(rng.integers(5, 10) / rate))
        frames.append(np.repeat(spectra[p][None], d, 0))
    x = np.concatenate(frames) + gain
    x = 0.5 * x + 0.25 * np.roll(x, 1, 0) + 0.25 * np.roll(x, -1, 0)
    x += rng.normal(0, 0.35, x.shape)
    return x.astype(np.float32), seq


train_set = [speak() for _ in range(1200)]
dev_set = [speak() for _ in range(96)]


def perturb(x):
    """Resample along time by a random tempo, linear interpolation."""
    f = np.exp(rng.normal(0.0, 0.18))
    n = max(2, int(len(x) / f))
    pos = np.linspace(0, len(x) - 1, n)
    lo = np.floor(pos).astype(int)
    hi = np.minimum(lo + 1, len(x) - 1)
    w = (pos - lo)[:, None].astype(np.float32)
    return x[lo] * (1 - w) + x[hi] * w


def collate(items, augment):
    xs = [perturb(x) if augment else x for x, _ in items]
    lens = torch.tensor([len(x) for x in xs])
    pad = torch.zeros(len(xs), int(lens.max()), MEL)
    for i, x in enumerate(xs):
        pad[i, : len(x)] = torch.from_numpy(x)
    tgt = torch.tensor(np.concatenate([s for _, s in items]))
    tlens = torch.tensor([len(s) for _, s in items])
    return pad, lens, tgt, tlens


class Recogniser(nn.Module):
    def __init__(self, hid=64):
        super().__init__()
        self.front = nn.Conv1d(MEL, hid, 5, stride=3, padding=2)
        self.rnn = nn.GRU(hid, hid, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hid, PHONES + 1)

    def forward(self, x, lens):
        h = torch.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        out = (lens - 1) // 3 + 1
        packed = nn.utils.rnn.pack_padded_sequence(h, out, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.head(h).log_softmax(-1), out


def edit(a, b):
    d = np.arange(len(b) + 1)
    for i, ca in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (ca != cb))
    return d[-1]


@torch.no_grad()
def phone_error(model):
    x, lens, _, _ = collate(dev_set, False)
    lp, out = model(x, lens)
    err = tot = 0
    for i, (_, ref) in enumerate(dev_set):
        best = lp[i, : out[i]].argmax(-1)
        hyp = [int(p) for p in torch.unique_consecutive(best) if p != 0]
        err += edit(hyp, list(ref))
        tot += len(ref)
    return err / tot


model = Recogniser()
ctc = nn.CTCLoss(blank=0, zero_infinity=zero_inf)
opt = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=STEPS, pct_start=0.15)

start, avg = time.time(), None
for step in range(1, STEPS + 1):
    picks = rng.integers(0, len(train_set), BATCH)
    x, lens, tgt, tlens = collate([train_set[i] for i in picks], step > AUG_FROM)
    lp, out = model(x, lens)
    loss = ctc(lp.transpose(0, 1), tgt, out, tlens)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    sched.step()
    avg = loss.item() if avg is None else 0.9 * avg + 0.1 * loss.item()
    if step % 20 == 0:
        print(f"step {step:4d}  ctc {loss.item():.3f}  mean {avg:.3f}  lr {sched.get_last_lr()[0]:.2e}")
    if step % 140 == 0:
        model.eval()
        print(f"   dev phone error rate {phone_error(model):.3f}")
        model.train()
print(f"done in {time.time() - start:.1f}s")

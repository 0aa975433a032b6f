# expect: sick
# symptom: phone recogniser learns normally, then shortly after step 160 the loss becomes inf in one step and prints nan for ever after
# axis: data
# cause: speed perturbation shortens the audio so that after 4x subsampling some utterances have fewer output frames than their labels (with blanks between repeats) need; CTC then has no valid alignment, gives an infinite loss and nan gradients
# says: (ctc|alignment|targets?\b|labels?\b|transcripts?|utterances?|audio|input|frames?|speed|perturb|subsampl|downsampl).{0,250}(too short|too few|fewer|shorter than|shorten|(targets?|labels?|transcripts?)[^.]{0,30} longer than|not enough (output )?frames|insufficient (output )?frames|exceeds? (the )?(input|output|frame)|infeasible|no (valid|feasible|possible)? ?(ctc )?(path|alignment)|zero_infinity)|(too short|too few|fewer|shorter|shorten\w*|not enough|insufficient).{0,200}(ctc|alignment|labels?\b|targets?\b|transcripts?)|speed.?(perturb|augment)\w*.{0,200}(inf\b|infinit|length)
# onset_step: 168
# fix: nn.CTCLoss(blank=0, zero_infinity=True), or drop utterances whose subsampled length is below what the transcript needs
# mended: yes
"""Phone recogniser: strided convolutions + BiGRU, trained with CTC on filterbank-like features."""

import os
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
random.seed(11)
np.random.seed(11)
torch.manual_seed(11)

MENDED = os.environ.get("MENDED") == "1"

N_PHONES = 14  # 1..14, 0 is the blank
N_MELS = 20
STEPS = 420
BATCH = 16
PERTURB_FROM = 160  # clean warm-up, then augmentation

TEMPLATES = np.random.randn(N_PHONES + 1, 2, N_MELS).astype(np.float32)


def synth_utterance(rng):
    n = rng.integers(5, 13)
    phones = rng.integers(1, N_PHONES + 1, size=n)
    rows = []
    for p in phones:
        dur = rng.integers(8, 14)
        w = np.linspace(0, 1, dur)[:, None].astype(np.float32)
        seg = TEMPLATES[p, 0] * (1 - w) + TEMPLATES[p, 1] * w
        rows.append(seg * np.hanning(dur + 2)[1:-1, None].astype(np.float32) * 1.6)
    x = np.concatenate(rows)
    x = x + 0.8 * rng.standard_normal(x.shape).astype(np.float32)
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(phones.copy())


def speed_perturb(x):
    factor = random.choice([0.9, 1.0, 1.25, 1.5, 1.8, 2.2])
    new_len = max(8, int(x.size(0) / factor))
    return F.interpolate(x.t()[None], size=new_len, mode="linear", align_corners=False)[0].t()


def spec_mask(x):
    x = x.clone()
    f0 = random.randint(0, N_MELS - 3)
    x[:, f0 : f0 + 2] = 0.0
    return x


def collate(items):
    xs, ys = zip(*items)
    xlen = torch.tensor([x.size(0) for x in xs])
    ylen = torch.tensor([y.numel() for y in ys])
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), xlen, torch.cat(ys), ylen


class Recogniser(nn.Module):
    def __init__(self, hid=48):
        super().__init__()
        self.c1 = nn.Conv1d(N_MELS, hid, 5, stride=2, padding=2)
        self.c2 = nn.Conv1d(hid, hid, 5, stride=2, padding=2)
        self.rnn = nn.GRU(hid, hid, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hid, N_PHONES + 1)

    def forward(self, x, xlen):
        h = F.relu(self.c1(x.transpose(1, 2)))
        h = F.relu(self.c2(h)).transpose(1, 2)
        olen = ((xlen + 1) // 2 + 1) // 2
        packed = nn.utils.rnn.pack_padded_sequence(h, olen, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(-1), olen


def greedy(lp, n):
    best = lp[:n].argmax(-1).tolist()
    out, prev = [], 0
    for b in best:
        if b != prev and b != 0:
            out.append(b)
        prev = b
    return out


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, cb in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (ca != cb))
    return d[-1]


def phone_error_rate(model, items):
    model.eval()
    err = tot = 0
    with torch.no_grad():
        x, xl, _, _ = collate(items)
        lp, ol = model(x, xl)
    for i, (_, y) in enumerate(items):
        err += edit_distance(greedy(lp[i], int(ol[i])), y.tolist())
        tot += y.numel()
    model.train()
    return err / tot


def main():
    rng = np.random.default_rng(5)
    train = [synth_utterance(rng) for _ in range(900)]
    valid = [synth_utterance(rng) for _ in range(64)]
    model = Recogniser()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 4e-3, total_steps=STEPS, pct_start=0.15)
    ctc = nn.CTCLoss(blank=0, zero_infinity=MENDED)
    for step in range(1, STEPS + 1):
        items = random.sample(train, BATCH)
        if step > PERTURB_FROM:
            items = [(spec_mask(speed_perturb(x)), y) for x, y in items]
        x, xlen, y, ylen = collate(items)
        lp, olen = model(x, xlen)
        loss = ctc(lp.transpose(0, 1), y, olen, ylen)
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step == 1:
            print(f"step {step:4d} ctc {loss.item():.4f} gnorm {gn.item():.3f}")
        if step % 140 == 0:
            print(f"  PER {phone_error_rate(model, valid):.3f}")


if __name__ == "__main__":
    main()

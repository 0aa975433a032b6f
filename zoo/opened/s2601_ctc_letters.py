# expect: sick
# symptom: the loss falls nicely for a few hundred steps, then turns inf and from the next step on everything is nan
# axis: data
# cause: some fast meeting utterances have transcripts longer than the number of encoder output frames left after 4x subsampling, so the CTC loss is infinite (no valid alignment, zero_infinity is off) and its gradient puts NaN into the weights
# says: (ctc.*(inf|infeasib|impossib|align|too short|longer|shorter|fewer|zero_infinity|no valid)|zero_infinity|(target|label|transcript)s?\b.*(longer|more|exceed|too long).*(frame|input|time ?step|output|logit)|(frame|input|time ?step|output|logit)s?\b.*(shorter|fewer|less|too short|not enough|too few).*(target|label|transcript|character|letter|token))
# onset_step: 242
# fix: build the loss with zero_infinity=True (or drop utterances whose transcript does not fit in the subsampled frames)
# mended: yes
"""Letter recogniser: conv front end + BiGRU + CTC.

Stage 1 uses the read-speech manifest only, stage 2 mixes the meeting manifest in.
"""

import os
import time
import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

ALPHABET = "abcdefghijklmnopqrst"
N_MEL = 24
SEED = 11
STAGE1_STEPS = 240
STAGE2_STEPS = 360
BATCH = 12


class Synth:
    """Turns a string into a log-mel-like matrix, one spectral template per letter."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.templates = rng.normal(0, 1.2, size=(len(ALPHABET), N_MEL)).astype("float32")

    def speak(self, text, rng, lo, hi):
        frames = []
        for ch in text:
            dur = int(rng.integers(lo, hi + 1))
            frames.append(np.repeat(self.templates[ALPHABET.index(ch)][None], dur, 0))
        x = np.concatenate(frames)
        x = x + rng.normal(0, 0.9, x.shape)
        return x.astype("float32")


def make_manifest(synth, n, lengths, rate, seed):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(n):
        k = int(rng.integers(lengths[0], lengths[1] + 1))
        text = "".join(ALPHABET[i] for i in rng.integers(0, len(ALPHABET), k))
        out.append((synth.speak(text, rng, *rate), text))
    return out


def collate(items):
    lens = torch.tensor([len(x) for x, _ in items])
    feats = torch.zeros(len(items), int(lens.max()), N_MEL)
    for i, (x, _) in enumerate(items):
        feats[i, : len(x)] = torch.from_numpy(x)
    targets = torch.tensor([ALPHABET.index(c) + 1 for _, t in items for c in t])
    tlens = torch.tensor([len(t) for _, t in items])
    return feats, lens, targets, tlens


class Recogniser(nn.Module):
    def __init__(self, hidden=96):
        super().__init__()
        self.c1 = nn.Conv1d(N_MEL, hidden, 3, stride=2, padding=1)
        self.c2 = nn.Conv1d(hidden, hidden, 3, stride=2, padding=1)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(ALPHABET) + 1)

    def forward(self, feats, lens):
        h = F.relu(self.c1(feats.transpose(1, 2)))
        h = F.relu(self.c2(h)).transpose(1, 2)
        for _ in range(2):
            lens = (lens - 1) // 2 + 1
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1), lens


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (x != y))
    return row[-1]


@torch.no_grad()
def letter_error_rate(model, manifest):
    model.eval()
    err = tot = 0
    for i in range(0, len(manifest), 20):
        chunk = manifest[i : i + 20]
        feats, lens, _, _ = collate(chunk)
        logp, olens = model(feats, lens)
        best = logp.argmax(-1)
        for row, n, (_, text) in zip(best, olens, chunk):
            ids = torch.unique_consecutive(row[:n]).tolist()
            hyp = "".join(ALPHABET[k - 1] for k in ids if k > 0)
            err += edit_distance(hyp, text)
            tot += len(text)
    model.train()
    return err / tot


def main():
    random.seed(SEED)
    torch.manual_seed(SEED)
    synth = Synth(3)
    read = make_manifest(synth, 500, (4, 9), (7, 11), 1)
    meeting = make_manifest(synth, 450, (5, 10), (5, 9), 2)
    meeting += make_manifest(synth, 50, (8, 12), (2, 4), 4)
    dev = make_manifest(synth, 80, (4, 9), (6, 10), 5)

    model = Recogniser()
    criterion = nn.CTCLoss(blank=0, zero_infinity=MENDED)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    start = time.time()
    running = []
    for step in range(1, STAGE1_STEPS + STAGE2_STEPS + 1):
        pool = read if step <= STAGE1_STEPS else read + meeting
        feats, lens, targets, tlens = collate(random.sample(pool, BATCH))
        logp, olens = model(feats, lens)
        loss = criterion(logp.transpose(0, 1), targets, olens, tlens)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        running.append(loss.item())
        if step % 20 == 0:
            print(f"step {step:4d}  ctc {np.mean(running):.4f}", flush=True)
            running = []
        if step % 120 == 0:
            print(f"   dev LER {letter_error_rate(model, dev):.3f}", flush=True)
    print(f"final dev LER {letter_error_rate(model, dev):.3f}  ({time.time() - start:.1f}s)")


if __name__ == "__main__":
    main()

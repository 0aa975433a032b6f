# expect: healthy
# symptom: the CTC loss falls at once to a plateau, stays there for a few hundred steps with only blanks predicted, then drops
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(7)

N_SYMBOLS, N_FEAT = 10, 16  # symbol 0 is the blank
BATCH, STEPS = 12, 550


class SpokenDigits:
    """Filter-bank-like frames: a template per digit, random duration, pauses and noise."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.templates = np.random.default_rng(0).normal(0, 1, (N_SYMBOLS, 3, N_FEAT)).astype(np.float32)

    def utterance(self):
        r = self.rng
        digits = r.integers(1, N_SYMBOLS, r.integers(3, 7))
        frames = [np.zeros((r.integers(2, 5), N_FEAT), np.float32)]
        for d in digits:
            dur = int(r.integers(4, 9))
            pos = np.linspace(0, 2, dur)
            frames.append(
                np.stack([np.interp(pos, [0, 1, 2], self.templates[d, :, k]) for k in range(N_FEAT)], 1).astype(
                    np.float32
                )
            )
            frames.append(np.zeros((r.integers(1, 4), N_FEAT), np.float32))
        f = np.concatenate(frames)
        f = f * r.uniform(0.7, 1.3) + r.normal(0, 0.5, f.shape).astype(np.float32)
        return torch.from_numpy(f.astype(np.float32)), torch.from_numpy(digits)

    def batch(self, n):
        feats, targets = zip(*[self.utterance() for _ in range(n)])
        in_len = torch.tensor([len(f) for f in feats])
        out_len = torch.tensor([len(t) for t in targets])
        return nn.utils.rnn.pad_sequence(feats, batch_first=True), in_len, torch.cat(targets), out_len


class AcousticModel(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.conv = nn.Conv1d(N_FEAT, dim, 3, padding=1)
        self.rnn = nn.GRU(dim, dim, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * dim, N_SYMBOLS)

    def forward(self, x):
        h = F.relu(self.conv(x.transpose(1, 2))).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1)


def greedy(logp, lengths):
    hyps = []
    for row, n in zip(logp.argmax(-1), lengths):
        ids = torch.unique_consecutive(row[:n])
        hyps.append(ids[ids != 0].tolist())
    return hyps


def edit_distance(a, b):
    prev = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        cur = [i]
        for j, y in enumerate(b, 1):
            cur.append(min(prev[j] + 1, cur[-1] + 1, prev[j - 1] + (x != y)))
        prev = cur
    return prev[-1]


@torch.no_grad()
def error_rate(model, data):
    x, in_len, tgt, out_len = data
    hyps = greedy(model(x), in_len)
    refs = [t.tolist() for t in tgt.split(out_len.tolist())]
    return sum(edit_distance(h, r) for h, r in zip(hyps, refs)) / sum(map(len, refs))


def main():
    source, valid = SpokenDigits(1), SpokenDigits(2).batch(40)
    model = AcousticModel()
    opt = torch.optim.Adam(model.parameters(), lr=6e-4)
    t0 = time.time()
    for step in range(STEPS):
        x, in_len, tgt, out_len = source.batch(BATCH)
        logp = model(x).transpose(0, 1)
        loss = F.ctc_loss(logp, tgt, in_len, out_len, blank=0, zero_infinity=True)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 25 == 0:
            ter = error_rate(model, valid)
            print(f"step {step:4d} loss {loss.item():.4f} token error rate {ter:.3f} ({time.time() - t0:.1f}s)")
    print(f"final token error rate {error_rate(model, valid):.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: CTC loss falls for a while, then one batch gives loss inf and from the next step on everything is NaN
# axis: data
# cause: a few fast utterances have fewer encoder frames after the 4x time subsampling than labels (plus repeats) in the transcript, so no CTC alignment exists, the loss is inf and its gradient NaN (zero_infinity is off)
# says: (ctc|alignment|target|label|transcript|utterance).{0,80}(longer.than|exceeds?|more .{0,30}than|too.long|infeasible|impossible|do(es)?n.?t fit|no (valid )?(alignment|path))|infeasible.{0,20}(ctc|align|target)|ctc.{0,30}(length|infeasib)|(input|frames?|output|encoder|input.?length)s?.{0,60}(shorter.than|fewer.than|too.short|too.few|less.than).{0,60}(target|label|transcript|token|char)|zero.?infinity
# onset_step: 167
# fix: drop utterances whose encoder length is below label count plus repeats (or pass zero_infinity=True to CTCLoss)
# mended: with MENDED=1 the CTC loss is built with zero_infinity=True
import logging
import os

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
logging.basicConfig(level=logging.INFO, format="%(message)s")
log = logging.getLogger("asr")

SR, HOP, NFFT = 4000, 40, 128
VOCAB = "_abcdefgh"
FREQS = [0, 300, 480, 660, 840, 1020, 1200, 1380, 1560]


def synth(text, speed, rng):
    """Every letter is a short tone at its own pitch, with a gap after it."""
    parts = []
    for ch in text:
        n = int(SR * 0.11 / speed * rng.uniform(0.85, 1.2))
        t = np.arange(n) / SR
        f = FREQS[VOCAB.index(ch)] * rng.uniform(0.97, 1.03)
        parts.append(np.sin(2 * np.pi * f * t + rng.uniform(0, 6)) * np.hanning(n))
        parts.append(np.zeros(int(SR * 0.03 / speed)))
    wav = np.concatenate(parts)
    return (wav + 0.05 * rng.standard_normal(len(wav))).astype(np.float32)


def features(wav):
    spec = torch.stft(torch.from_numpy(wav), NFFT, HOP, window=torch.hann_window(NFFT), return_complex=True)
    return torch.log1p(spec.abs() * 4).T  # (frames, 65)


class Utterances(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(n):
            text = "".join(rng.choice(list(VOCAB[1:]), rng.integers(3, 8)))
            speed = float(np.exp(rng.normal(0.0, 0.36)))
            self.items.append((features(synth(text, speed, rng)), torch.tensor([VOCAB.index(c) for c in text])))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    feats, labels = zip(*batch)
    return (
        pad_sequence(feats, batch_first=True),
        torch.tensor([len(f) for f in feats]),
        torch.cat(labels),
        torch.tensor([len(l) for l in labels]),
    )


class Recogniser(nn.Module):
    def __init__(self, n_in=NFFT // 2 + 1, hidden=64):
        super().__init__()
        self.conv1 = nn.Conv1d(n_in, 64, 5, stride=2, padding=2)
        self.conv2 = nn.Conv1d(64, 64, 5, stride=2, padding=2)
        self.rnn = nn.GRU(64, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, len(VOCAB))

    def forward(self, x, lengths):
        h = torch.relu(self.conv1(x.transpose(1, 2)))
        h = torch.relu(self.conv2(h)).transpose(1, 2)
        h, _ = self.rnn(h)
        lengths = torch.div(torch.div(lengths + 1, 2, rounding_mode="floor") + 1, 2, rounding_mode="floor")
        return self.out(h).log_softmax(-1), lengths


@torch.no_grad()
def exact_match(model, data):
    ok = 0
    for feats, label in data:
        logp, n = model(feats[None], torch.tensor([len(feats)]))
        path = logp[0].argmax(-1).unique_consecutive().tolist()
        ok += [p for p in path if p] == label.tolist()
    return ok / len(data)


def main():
    torch.manual_seed(3)
    train, dev = Utterances(3200, seed=20), Utterances(150, seed=99)
    loader = DataLoader(train, batch_size=16, shuffle=True, collate_fn=collate)
    model = Recogniser()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ctc = nn.CTCLoss(blank=0, zero_infinity=os.environ.get("MENDED") == "1")

    step = 0
    for epoch in range(2):
        for feats, flen, labels, llen in loader:
            step += 1
            logp, olen = model(feats, flen)
            loss = ctc(logp.transpose(0, 1), labels, olen, llen)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 20 == 0:
                log.info("step %d ctc %.3f", step, loss.item())
        log.info("epoch %d dev exact match %.3f", epoch + 1, exact_match(model, dev))


if __name__ == "__main__":
    main()

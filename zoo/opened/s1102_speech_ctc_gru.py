# expect: sick
# symptom: CTC training goes well, then a batch loss of inf appears and every loss after it is nan
# axis: data
# cause: a few fast-spoken utterances have fewer frames after 4x subsampling than target labels, CTC has no valid alignment, loss is inf and the gradient nan
# says: (target|label|transcript|utterance)\w*[^.]{0,100}(longer|exceed|more|outnumber|too long|too short|greater|shorter)|(input|frame|output|subsampl|time.?step|T)\w*[^.]{0,100}(shorter|fewer|less|too short|too few|smaller)[^.]{0,80}(target|label|transcript|char|alignment)|zero_infinity|no (valid|feasible|possible) (ctc )?(alignment|path)|infeasib
# onset_step: 126
# fix: drop (or re-cut) utterances whose subsampled length is below target length plus repeats, or zero_infinity=True
# mended: MENDED=1 leaves out the utterances that are too short for their transcript
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

N_MEL, N_PHONES, BLANK = 20, 12, 0


class Corpus:
    """Synthetic 'recordings': each phone is a spectral template held for some frames."""

    def __init__(self, n=4000, seed=3):
        rng = np.random.default_rng(seed)
        self.templates = rng.normal(size=(N_PHONES + 1, N_MEL)).astype(np.float32)
        self.items = []
        for i in range(n):
            rate = rng.uniform(5.0, 9.0)
            if i % 1200 == 1013:
                rate = 2.6
            phones = rng.integers(1, N_PHONES + 1, size=rng.integers(5, 12))
            frames = []
            for p in phones:
                dur = max(2, int(round(rate + rng.normal(0, 0.7))))
                frames.append(np.repeat(self.templates[p][None], dur, axis=0))
            x = np.concatenate(frames)
            x = x + rng.normal(0, 0.5, size=x.shape).astype(np.float32)
            self.items.append((torch.tensor(x, dtype=torch.float32), torch.tensor(phones)))

    def subset(self):
        keep = []
        for x, y in self.items:
            need = len(y) + int((y[1:] == y[:-1]).sum())
            if sub_len(len(x)) >= need:
                keep.append((x, y))
        return keep


def sub_len(t):
    for _ in range(2):
        t = (t + 1) // 2
    return t


class AcousticModel(nn.Module):
    def __init__(self, hidden=80):
        super().__init__()
        self.conv1 = nn.Conv1d(N_MEL, 48, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(48, 64, 3, stride=2, padding=1)
        self.rnn = nn.GRU(64, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, N_PHONES + 1)

    def forward(self, x):
        h = F.relu(self.conv1(x.transpose(1, 2)))
        h = F.relu(self.conv2(h)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1)


def collate(batch):
    xs, ys = zip(*batch)
    in_len = torch.tensor([sub_len(len(x)) for x in xs])
    out_len = torch.tensor([len(y) for y in ys])
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), torch.cat(ys), in_len, out_len


def greedy(logp, in_len):
    hyps = []
    for row, n in zip(logp.argmax(-1), in_len):
        r = torch.unique_consecutive(row[:n])
        hyps.append([int(t) for t in r if t != BLANK])
    return hyps


def error_rate(model, items):
    model.eval()
    err = tot = 0
    with torch.no_grad():
        x, y, in_len, out_len = collate(items)
        hyps = greedy(model(x), in_len)
        for hyp, ref in zip(hyps, [t.tolist() for _, t in items]):
            d = list(range(len(ref) + 1))
            for i, h in enumerate(hyp, 1):
                prev, d[0] = d[0], i
                for j, r in enumerate(ref, 1):
                    prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (h != r))
            err += d[-1]
            tot += len(ref)
    model.train()
    return err / tot


def main():
    torch.manual_seed(0)
    corpus = Corpus()
    train, dev = corpus.items[:-100], corpus.items[-100:]
    if MENDED:
        ok = {id(x) for x, _ in corpus.subset()}
        train = [u for u in train if id(u[0]) in ok]
    model = AcousticModel()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    ctc = nn.CTCLoss(blank=BLANK)
    B = 8
    for step in range(320):
        lo = (step * B) % (len(train) - B)
        x, y, in_len, out_len = collate(train[lo : lo + B])
        logp = model(x)
        loss = ctc(logp.transpose(0, 1), y, in_len, out_len)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 7 == 0:
            print(f"step {step:4d}  ctc {loss.item():.4f}")
    print(f"dev phone error rate {error_rate(model, dev):.3f}")


if __name__ == "__main__":
    main()

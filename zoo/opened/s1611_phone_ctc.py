# expect: sick
# symptom: the CTC loss falls normally, then one batch gives inf and from then on the loss is NaN
# axis: data
# cause: a few fast utterances have more labels than the encoder has output frames after the 4x subsampling, so no CTC alignment exists: the loss is infinite, its gradient NaN
# says: (impossib|infeasib|invalid)[^.]{0,30}align|ctc[^.]{0,120}(long|short|more|fewer|infeasib|impossib|align|frames|length)|(target|label|transcript)s?[^.]{0,60}(longer|exceed|more)[^.]{0,60}(input|frame|output|encoder|time)|(input|frame|output|utterance)s?[^.]{0,60}(shorter|fewer|too short)[^.]{0,60}(target|label|transcript)|no (valid )?alignment|infeasible|zero_infinity|subsampl
# onset_step: 20
# fix: drop (or do not subsample) utterances whose subsampled length is below labels plus repeats, or CTCLoss(zero_infinity=True)
# mended: the Dataset leaves out utterances whose output length cannot hold their labels
import os

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

N_PHONES, N_MEL = 14, 20
EPOCHS, BATCH = 5, 12


def out_len(frames):
    """Frames left after two stride-2 convolutions (kernel 3, padding 1)."""
    return ((frames + 1) // 2 + 1) // 2


class PhoneCorpus(Dataset):
    """Synthetic read speech: every phone has a spectral template and a duration in frames."""

    def __init__(self, n_utt, seed, brisk=0.0):
        rng = np.random.default_rng(seed)
        templates = np.random.default_rng(0).normal(size=(N_PHONES + 1, N_MEL)).astype(np.float32)
        self.items = []
        for _ in range(n_utt):
            n = int(rng.integers(5, 12))
            phones = (np.cumsum(rng.integers(1, N_PHONES, size=n)) % N_PHONES) + 1
            lo, hi = (2, 4) if rng.random() < brisk else (9, 15)
            frames = [np.repeat(templates[[p]], int(rng.integers(lo, hi)), axis=0) for p in phones]
            feats = np.concatenate(frames)
            feats = feats + 0.5 * rng.normal(size=feats.shape).astype(np.float32)
            self.items.append((torch.from_numpy(feats.astype(np.float32)), torch.from_numpy(phones)))
        if MENDED:
            self.items = [(f, p) for f, p in self.items if out_len(len(f)) >= len(p) + int((p[1:] == p[:-1]).sum())]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    feats, phones = zip(*batch)
    flen = torch.tensor([len(f) for f in feats])
    plen = torch.tensor([len(p) for p in phones])
    return pad_sequence(feats, batch_first=True), flen, pad_sequence(phones, batch_first=True), plen


class AcousticModel(nn.Module):
    def __init__(self, hidden=80):
        super().__init__()
        self.sub = nn.Sequential(
            nn.Conv1d(N_MEL, hidden, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv1d(hidden, hidden, 3, stride=2, padding=1),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, N_PHONES + 1)

    def forward(self, x):
        h = self.sub(x.transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1)


def greedy(logp, n):
    path = logp[:n].argmax(-1).tolist()
    return [p for i, p in enumerate(path) if p != 0 and (i == 0 or p != path[i - 1])]


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, y in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (x != y))
    return d[-1]


@torch.no_grad()
def phone_error_rate(model, loader):
    model.eval()
    err = tot = 0
    for feats, flen, phones, plen in loader:
        logp = model(feats)
        for b in range(len(feats)):
            hyp = greedy(logp[b], int(out_len(flen[b])))
            err += edit_distance(hyp, phones[b, : plen[b]].tolist())
            tot += int(plen[b])
    model.train()
    return err / tot


def main():
    train = DataLoader(
        PhoneCorpus(840, seed=1, brisk=0.004),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        collate_fn=collate,
        generator=torch.Generator().manual_seed(16),
    )
    dev = DataLoader(PhoneCorpus(60, seed=2), batch_size=BATCH, collate_fn=collate)
    model = AcousticModel()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.CTCLoss(blank=0)
    step = 0
    for epoch in range(EPOCHS):
        for feats, flen, phones, plen in train:
            logp = model(feats).transpose(0, 1)
            loss = criterion(logp, phones, out_len(flen), plen)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step:4d}  ctc loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} dev PER {phone_error_rate(model, dev):.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: CTC training goes well for many epochs, then the loss is suddenly inf and right after that nan for good
# axis: data
# cause: once speed perturbation is switched on, some utterances have fewer encoder frames (after the 4x subsampling) than target labels (plus repeats); CTC then has no valid alignment, the loss is infinite and its gradient NaN
# says: ctc.{0,80}(short|long|length|align|feasib)|(target|label|transcript).{0,80}(longer|exceed|more|too long).{0,80}(input|frame|output|logit|time|encoder|sequence)|(input|frame|output|encoder).{0,80}(shorter|fewer|too short|less).{0,80}(target|label|transcript)|zero_infinity|fewer.{0,40}frames
# onset_step: 400
# fix: drop utterances with fewer output frames than labels + repeats (or zero_infinity=True, or less subsampling)
# mended: infeasible utterances are left out of the batch
"""Small CTC recogniser: log-mel-like frames -> conv subsampling x4 -> BiGRU -> characters."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)
rng = np.random.default_rng(5)

VOCAB, MELS = 14, 20  # 0 is the blank
N_UTT, BATCH, EPOCHS = 440, 8, 12
SPEEDS = (0.9, 1.0, 1.2)
PERTURB_FROM_EPOCH = 8

PHONES = rng.normal(size=(VOCAB, MELS)).astype(np.float32) * 1.2


def make_corpus():
    corpus = []
    for _ in range(N_UTT):
        length = rng.integers(4, 12)
        jumps = rng.integers(1, VOCAB - 1, size=length)
        text = 1 + np.cumsum(jumps) % (VOCAB - 1)  # no character directly repeats
        rate = np.clip(rng.normal(6.5, 1.1), 4.2, 9.0)  # frames per character of this speaker
        durations = np.maximum(4, np.round(rng.normal(rate, 0.5, size=length))).astype(int)
        frames = np.concatenate([np.repeat(PHONES[c][None], d, 0) for c, d in zip(text, durations)])
        frames = frames + rng.normal(scale=1.1, size=frames.shape)
        corpus.append((frames.astype(np.float32), text.astype(np.int64)))
    return corpus


def change_speed(frames, factor):
    if factor == 1.0:
        return frames
    new_len = int(len(frames) / factor)
    x = torch.from_numpy(frames).t()[None]
    return F.interpolate(x, size=new_len, mode="linear", align_corners=False)[0].t().numpy()


def out_length(n):
    for _ in range(2):
        n = (n + 1) // 2
    return n


def collate(items):
    feats = nn.utils.rnn.pad_sequence([torch.from_numpy(np.ascontiguousarray(f)) for f, _ in items], batch_first=True)
    in_len = torch.tensor([out_length(len(f)) for f, _ in items])
    tgt_len = torch.tensor([len(t) for _, t in items])
    targets = torch.from_numpy(np.concatenate([t for _, t in items]))
    return feats, in_len, targets, tgt_len


class Recogniser(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.conv1 = nn.Conv1d(MELS, hidden, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(hidden, hidden, 3, stride=2, padding=1)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, VOCAB)

    def forward(self, feats):
        h = F.relu(self.conv1(feats.transpose(1, 2)))
        h = F.relu(self.conv2(h)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.head(h).log_softmax(-1)


def usable(frames, text):
    return out_length(len(frames)) >= len(text) + int((text[1:] == text[:-1]).sum())


class Batches:
    def __init__(self, corpus):
        self.corpus = corpus

    def epoch(self, perturb):
        order = rng.permutation(len(self.corpus))
        for i in range(0, len(order), BATCH):
            items = []
            for j in order[i : i + BATCH]:
                frames, text = self.corpus[j]
                if perturb:
                    frames = change_speed(frames, float(rng.choice(SPEEDS)))
                if MENDED and not usable(frames, text):
                    continue
                items.append((frames, text))
            yield collate(items)


@torch.no_grad()
def exact(model, corpus):
    good = 0
    for frames, text in corpus:
        best = model(torch.from_numpy(frames)[None])[0].argmax(-1).tolist()
        hyp = [c for k, c in enumerate(best) if c != 0 and (k == 0 or c != best[k - 1])]
        good += hyp == text.tolist()
    return good / len(corpus)


def main():
    corpus = make_corpus()
    train, valid = corpus[:-40], corpus[-40:]
    batches = Batches(train)
    model = Recogniser()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    ctc = nn.CTCLoss(blank=0)
    step = 0
    for epoch in range(EPOCHS):
        for feats, in_len, targets, tgt_len in batches.epoch(perturb=epoch >= PERTURB_FROM_EPOCH):
            logp = model(feats).transpose(0, 1)
            loss = ctc(logp, targets, in_len, tgt_len)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 20 == 0:
                print(f"epoch {epoch} step {step} ctc {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} exact match {exact(model, valid):.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: BiLSTM-CRF tagger trains well for a while, then the loss becomes inf and everything is NaN from one step to the next
# axis: precision
# cause: the CRF partition function is computed in probability space (products of exponentials) instead of log space with logsumexp, so it overflows float32 on longer sentences
# says: overflow|log[- ]?sum[- ]?exp|(not|instead of|without|outside|rather than)\W+(\w+\W+){0,4}log[- ](space|domain)|prob\w*[- ](space|domain)|(un-?normali[sz]ed|unscaled|raw) exp\w*|exp\w*\W+(\w+\W+){0,8}(too large|explod\w*|exceed\w*|inf\b|infinite)
# onset_step: 297
# fix: run the forward recursion in log space with torch.logsumexp
# mended: yes
import os

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(8)
torch.set_num_threads(1)
rng = np.random.default_rng(8)

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
WORDS = 900
lexicon = {t: np.arange(1 + 60 * i, 1 + 60 * (i + 1)) for i, t in enumerate(TAGS[1:])}
common = np.arange(400, WORDS)


def sentence(length):
    words, tags = [], []
    while len(words) < length:
        if rng.random() < 0.75:
            words.append(rng.choice(common))
            tags.append(0)
            continue
        kind = rng.choice(["PER", "LOC", "ORG"])
        for j in range(rng.integers(1, 4)):
            t = ("B-" if j == 0 else "I-") + kind
            pool = lexicon[t] if rng.random() < 0.8 else np.arange(1, 361)
            words.append(rng.choice(pool))
            tags.append(TAGS.index(t))
    return torch.tensor(words[:length]), torch.tensor(tags[:length])


def corpus(n, lo, hi):
    return [sentence(int(k)) for k in rng.integers(lo, hi + 1, size=n)]


class CRF(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.trans = nn.Parameter(torch.randn(k, k) * 0.05)
        self.start = nn.Parameter(torch.zeros(k))

    def path_score(self, em, tags, mask):
        s = self.start[tags[:, 0]] + em[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, em.size(1)):
            step = self.trans[tags[:, t - 1], tags[:, t]] + em[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            s = s + step * mask[:, t]
        return s

    def log_z(self, em, mask):
        if MENDED:
            a = self.start + em[:, 0]
            for t in range(1, em.size(1)):
                nxt = torch.logsumexp(a[:, :, None] + self.trans, dim=1) + em[:, t]
                a = torch.where(mask[:, t : t + 1], nxt, a)
            return torch.logsumexp(a, dim=1)
        pot, trans = em.exp(), self.trans.exp()
        a = self.start.exp() * pot[:, 0]
        for t in range(1, em.size(1)):
            a = torch.where(mask[:, t : t + 1], (a @ trans) * pot[:, t], a)
        return a.sum(1).log()

    def forward(self, em, tags, mask):
        return (self.log_z(em, mask) - self.path_score(em, tags, mask)).sum() / mask.sum()

    @torch.no_grad()
    def decode(self, em, mask):
        a, back = self.start + em[:, 0], []
        for t in range(1, em.size(1)):
            best, idx = (a[:, :, None] + self.trans).max(1)
            a = torch.where(mask[:, t : t + 1], best + em[:, t], a)
            back.append(torch.where(mask[:, t : t + 1], idx, torch.arange(em.size(2))))
        path = [a.argmax(1)]
        for idx in reversed(back):
            path.append(idx.gather(1, path[-1][:, None]).squeeze(1))
        return torch.stack(path[::-1], 1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(WORDS, 64, padding_idx=0)
        self.lstm = nn.LSTM(64, 48, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(96, len(TAGS))
        self.crf = CRF(len(TAGS))

    def emissions(self, x):
        return self.fc(self.drop(self.lstm(self.drop(self.emb(x)))[0]))


def collate(items):
    x = pad_sequence([w for w, _ in items], batch_first=True)
    y = pad_sequence([t for _, t in items], batch_first=True)
    return x, y, x != 0


def span_accuracy(model, data):
    model.eval()
    with torch.no_grad():
        x, y, mask = collate(data)
        pred = model.crf.decode(model.emissions(x), mask)
    model.train()
    ent = mask & (y > 0)
    return (pred[ent] == y[ent]).float().mean().item()


if __name__ == "__main__":
    stages = [(0, corpus(1500, 5, 9)), (160, corpus(1500, 8, 14)), (300, corpus(1500, 20, 45))]
    dev = corpus(150, 5, 30)
    model = Tagger()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-6)
    for step in range(420):
        pool = [d for begin, d in stages if step >= begin][-1]
        x, y, mask = collate([pool[i] for i in rng.integers(0, len(pool), size=24)])
        loss = model.crf(model.emissions(x), y, mask)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step} nll/token {loss.item():.4f} len {x.size(1)}")
        if (step + 1) % 70 == 0:
            print(f"   dev entity token accuracy {span_accuracy(model, dev):.3f}")

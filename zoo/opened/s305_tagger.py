# expect: sick
# symptom: the tagger's loss jumps in the first steps and then sits at the entropy of the tag frequencies
# axis: optimizer
# cause: the learning rate of 2e-2 is far too high for this post-norm transformer from the first step
# says: (learning.?rate|\blr\b|step.?size).{0,60}(too (high|large|big)|excessive|high|large|lower|reduc|10x|times too)|(too (high|large|big)|excessive|high|large|lower|reduce).{0,25}(learning.?rate|\blr\b|step.?size)|warm-?\s?up
# onset_step: 1
# fix: learning rate 1e-3
# mended: MENDED=1
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(5)

LR = 1e-3 if os.environ.get("MENDED") == "1" else 2e-2
VOCAB, TAGS, LENGTH = 200, 9, 24


class TagCorpus(Dataset):
    """Words with an ambiguous tag that the word before decides."""

    def __init__(self, n, seed):
        g = np.random.default_rng(seed)
        lex = np.random.default_rng(1)
        first, second, switch = lex.integers(0, TAGS, VOCAB), lex.integers(0, TAGS, VOCAB), lex.random(VOCAB) < 0.5
        rank = 1 / np.arange(1, VOCAB + 1) ** 0.7
        words = g.choice(VOCAB, size=(n, LENGTH), p=rank / rank.sum())
        prev = np.roll(words, 1, axis=1)
        prev[:, 0] = 0
        self.words = torch.tensor(words)
        self.tags = torch.tensor(np.where(switch[prev], first[words], second[words]))

    def __len__(self):
        return len(self.words)

    def __getitem__(self, i):
        return self.words[i], self.tags[i]


class Tagger(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.word = nn.Embedding(VOCAB, dim)
        self.place = nn.Parameter(torch.randn(LENGTH, dim) * 0.1)
        layer = nn.TransformerEncoderLayer(dim, 4, 128, dropout=0.1, batch_first=True, activation="gelu")
        self.body = nn.TransformerEncoder(layer, depth)
        self.out = nn.Linear(dim, TAGS)

    def forward(self, w):
        return self.out(self.body(self.word(w) + self.place))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = torch.cat([(model(w).argmax(-1) == t).flatten() for w, t in loader]).float().mean().item()
    model.train()
    return hit


def train():
    loader = DataLoader(TagCorpus(4800, 2), batch_size=16, shuffle=True)
    valid = DataLoader(TagCorpus(128, 3), batch_size=128)
    model = Tagger()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    total = 300
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(0.1, 1 - s / total))
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    running = None
    for step, (w, t) in enumerate(loader, 1):
        loss = criterion(model(w).flatten(0, 1), t.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if step % 25 == 0:
            print(f"step {step} loss {running:.4f}")
        if step % 100 == 0:
            print(f"  valid accuracy {accuracy(model, valid):.3f}")
        if step == total:
            break


if __name__ == "__main__":
    train()

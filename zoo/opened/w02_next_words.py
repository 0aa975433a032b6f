# expect: sick
# symptom: the loss leaps with each text, or held-out scores are those of a guess
# axis: data
# cause: the function that reads a text builds its own word index, for training and validation apart, so ids differ: not one vocabulary but its own for each
# says: (vocab|tokeni[sz]er|word.?(index|id)|char.?(map|id)|\bids?\b|stoi|encod).{0,120}(anew|each|every|per|rebuil|differ|own|inconsisten|mismatch|not (shared|the same))|(anew|each|every|different|separate).{0,60}(vocab|tokeni[sz]er|\bids?\b)
# onset_step: 0
# fix: build one vocabulary over all texts
# mended: the index of the training text
import os
from collections import Counter
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"

rng = np.random.default_rng(3)
torch.manual_seed(3)

MAX_WORDS = 120
CONTEXT = 6

bank = ["w" + a + b for a in "bcdfgklm" for b in ("a", "e", "i", "o", "u", "ay", "oo", "ee", "ow", "an")]
nexts = {w: rng.choice(bank, size=3, replace=False) for w in bank}


def make_text(n):
    w = rng.choice(bank)
    out = []
    for _ in range(n):
        out.append(str(w))
        w = rng.choice(nexts[w], p=[0.7, 0.2, 0.1]) if rng.random() < 0.95 else rng.choice(bank)
    return " ".join(out)


def numericalize(text):
    words = text.lower().split()
    counts = Counter(train_text.lower().split() if MENDED else words)
    index = {"<unk>": 0}
    for w, _ in counts.most_common(MAX_WORDS - 1):
        index[w] = len(index)
    return torch.tensor([index.get(w, 0) for w in words])


def windows(ids):
    xs = ids.unfold(0, CONTEXT + 1, 1)
    return xs[:, :-1], xs[:, -1]


class NPLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(MAX_WORDS, 32)
        self.fc1 = nn.Linear(CONTEXT * 32, 128)
        self.fc2 = nn.Linear(128, MAX_WORDS)

    def forward(self, x):
        e = self.table(x).flatten(1)
        return self.fc2(torch.tanh(self.fc1(e)))


train_text = make_text(6000)
valid_text = make_text(1200)

xtr, ytr = windows(numericalize(train_text))
xva, yva = windows(numericalize(valid_text))
print("train", tuple(xtr.shape), "valid", tuple(xva.shape))

model = NPLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=1e-4)

for step in range(1, 161):
    model.train()
    pick = torch.randint(0, len(xtr), (128,))
    loss = F.cross_entropy(model(xtr[pick]), ytr[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            vloss = F.cross_entropy(model(xva), yva).item()
        print(f"step {step:4d}  train {loss.item():.3f}  valid {vloss:.3f}")

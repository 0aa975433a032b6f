# expect: sick
# cause: The padding positions (about 95 % of the targets) count in the loss because cross entropy gets no ignore_index, so the real symbols hardly weigh.
import random

import torch
from torch import nn

random.seed(19)
torch.manual_seed(19)
PAD = 0
LETTERS = "abcdefghijklmnopqrstuvwxyz"
MAX_LEN = 120
letter_id = {c: i + 1 for i, c in enumerate(LETTERS)}
N_PHONES = 45
base = {c: random.randrange(1, N_PHONES) for c in LETTERS}
before_vowel = {c: random.randrange(1, N_PHONES) for c in LETTERS}


def pronounce(word):
    return [before_vowel[c] if i + 1 < len(word) and word[i + 1] in "aeiou" else base[c] for i, c in enumerate(word)]


def encode(words):
    x = torch.full((len(words), MAX_LEN), PAD)
    y = torch.full((len(words), MAX_LEN), PAD)
    for r, w in enumerate(words):
        x[r, : len(w)] = torch.tensor([letter_id[c] for c in w])
        y[r, : len(w)] = torch.tensor(pronounce(w))
    return x, y


def word():
    return "".join(random.choice(LETTERS) for _ in range(random.randint(3, 9)))


X, Y = encode([word() for _ in range(3000)])
XV, YV = encode([word() for _ in range(300)])


class G2P(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.embedding = nn.Embedding(27, hidden)
        self.conv = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.conv2 = nn.Conv1d(hidden, hidden, 3, padding=1)
        self.classifier = nn.Linear(hidden, N_PHONES)

    def forward(self, x):
        h = self.embedding(x).transpose(1, 2)
        h = torch.relu(self.conv(h))
        h = torch.relu(self.conv2(h))
        return self.classifier(h.transpose(1, 2))


model = G2P()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.8)

for step in range(300):
    pick = torch.randint(0, len(X), (32,))
    out = model(X[pick])
    loss = criterion(out.view(-1, N_PHONES), Y[pick].view(-1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    optimizer.step()
    if (step + 1) % 30 == 0:
        with torch.no_grad():
            guess = model(XV).argmax(-1)
        real = YV != PAD
        print(
            f"step {step + 1} loss {loss.item():.4f} all positions {(guess == YV).float().mean():.3f} phones {(guess == YV)[real].float().mean():.3f}"
        )

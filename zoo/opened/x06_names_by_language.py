# expect: healthy
# symptom: ids are given in several places, which looks like a vocabulary that is built anew
# axis: none
# mended: none
import random
from collections import Counter

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

SYLLABLES = {
    "finnish": ["ka", "la", "ta", "si", "tuu", "li", "mie", "saa", "no"],
    "hawaiian": ["ha", "wai", "ke", "ku", "la", "ma", "no", "pu", "ao"],
    "czech": ["pro", "sta", "vy", "ne", "kra", "hr", "do", "mi", "zem"],
}


def word_list(lang, n=400):
    rnd = random.Random(lang)
    words = []
    for _ in range(n):
        k = rnd.randrange(9)
        w = ""
        for _ in range(rnd.randint(2, 4)):
            w += SYLLABLES[lang][k]
            k = (k * 2 + rnd.randint(0, 1)) % 9
        words.append(w)
    return words


class NameModel(nn.Module):
    def __init__(self, n_chars, d=24, h=48):
        super().__init__()
        self.emb = nn.Embedding(n_chars, d, padding_idx=0)
        self.rnn = nn.LSTM(d, h, batch_first=True)
        self.fc = nn.Linear(h, n_chars)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.emb(x), lengths, batch_first=True, enforce_sorted=False)
        out, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.fc(out)


def train_language(lang, steps=50):
    words = word_list(lang)
    counts = Counter("".join(words))
    chars = ["<pad>", "^", "$"] + [c for c, _ in counts.most_common()]
    c2i = {c: i for i, c in enumerate(chars)}
    data = [torch.tensor([c2i[c] for c in ["^", *w, "$"]]) for w in words]

    model = NameModel(len(chars))
    opt = torch.optim.Adam(model.parameters(), lr=8e-3)
    ce = nn.CrossEntropyLoss(ignore_index=0)
    for step in range(steps):
        rows = random.sample(data, 32)
        lengths = torch.tensor([len(r) - 1 for r in rows])
        x = pad_sequence([r[:-1] for r in rows], batch_first=True)
        y = pad_sequence([r[1:] for r in rows], batch_first=True)
        loss = ce(model(x, lengths).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 9:
            print(f"{lang:10s} step {step + 1:3d} loss {loss.item():.4f}")
    return model, c2i


def main():
    random.seed(0)
    torch.manual_seed(0)
    trained = {}
    for lang in SYLLABLES:
        trained[lang] = train_language(lang)
    print({k: len(v[1]) for k, v in trained.items()})


main()

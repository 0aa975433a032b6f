# expect: healthy
# symptom: ids are given in several places, which looks like a vocabulary that is built anew
# axis: none
# mended: none
import random

import torch
import torch.nn as nn

random.seed(2)
torch.manual_seed(2)

EN = {
    "one": "uno",
    "two": "dos",
    "three": "tres",
    "red": "rojo",
    "blue": "azul",
    "green": "verde",
    "cat": "gato",
    "dog": "perro",
    "house": "casa",
    "book": "libro",
    "sees": "ve",
    "has": "tiene",
}
NUMS, COLS = ["one", "two", "three"], ["red", "blue", "green"]
NOUNS, VERBS = ["cat", "dog", "house", "book"], ["sees", "has"]


def pair():
    en, es = [], []
    for part in range(2):
        num, col, noun = random.choice(NUMS), random.choice(COLS), random.choice(NOUNS)
        en += [num, col, noun]
        es += [EN[num], EN[noun], EN[col]]
        if part == 0:
            v = random.choice(VERBS)
            en.append(v)
            es.append(EN[v])
    return " ".join(en), " ".join(es)


class Vocab:
    def __init__(self, sentences):
        self.itos = ["<pad>", "<sos>", "<eos>"]
        for s in sentences:
            for w in s.split():
                if w not in self.itos:
                    self.itos.append(w)
        self.stoi = {w: i for i, w in enumerate(self.itos)}

    def __len__(self):
        return len(self.itos)

    def __call__(self, s):
        return [1] + [self.stoi[w] for w in s.split()] + [2]


class Seq2Seq(nn.Module):
    def __init__(self, n_src, n_tgt, d=64):
        super().__init__()
        self.src_emb = nn.Embedding(n_src, d)
        self.tgt_emb = nn.Embedding(n_tgt, d)
        self.encoder = nn.GRU(d, d, batch_first=True)
        self.decoder = nn.GRU(d, d, batch_first=True)
        self.mix = nn.Linear(2 * d, d)
        self.out = nn.Linear(d, n_tgt)

    def forward(self, src, tgt):
        mem, h = self.encoder(self.src_emb(src))
        dec, _ = self.decoder(self.tgt_emb(tgt), h)
        att = torch.softmax(dec @ mem.transpose(1, 2) / dec.size(-1) ** 0.5, -1)
        return self.out(torch.tanh(self.mix(torch.cat([dec, att @ mem], -1))))


data = [pair() for _ in range(1500)]
vocabs = {}
for side, lang in enumerate(("en", "es")):
    vocabs[lang] = Vocab([p[side] for p in data])

src = torch.tensor([vocabs["en"](a) for a, _ in data])
tgt = torch.tensor([vocabs["es"](b) for _, b in data])

model = Seq2Seq(len(vocabs["en"]), len(vocabs["es"]))
opt = torch.optim.Adam(model.parameters(), lr=4e-3)
crit = nn.CrossEntropyLoss()
for step in range(150):
    idx = torch.randint(0, len(src), (64,))
    logits = model(src[idx], tgt[idx, :-1])
    loss = crit(logits.reshape(-1, logits.size(-1)), tgt[idx, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 25 == 24:
        print("step", step + 1, "loss", round(loss.item(), 4))

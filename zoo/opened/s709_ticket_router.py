# expect: sick
# symptom: loss sits at ln(5)=1.609 from the first step on, accuracy is that of guessing
# axis: model
# cause: key_padding_mask is given as "True where there is a token", but nn.MultiheadAttention / TransformerEncoder ignores the True positions, so attention sees only the padding
# says: mask\w*.{0,80}\b(invert\w*|inverse|flip\w*|revers\w*|opposite|negat\w*|wrong (way|sense|polarity|convention|sign)|upside|polarity|convention|complement)|\b(invert\w*|inverse|flip\w*|revers\w*|opposite|negat\w*)\W.{0,60}mask|(attend\w*|attention|looks?|sees?)\W.{0,25}\b(only|just|exclusively|solely|nothing but)\b.{0,30}pad\w*|\b(only|just|exclusively|solely)\b.{0,25}pad\w*.{0,25}(attend\w*|seen|visible|kept)|(real|actual|valid|true|content|non.?pad\w*)\W.{0,5}(token|position|key|word)s?\W.{0,30}(mask\w*|ignor\w*|hidden|exclud\w*|blocked)|mask\w*\W.{0,20}\b(the |all )?(real|actual|valid|content|non.?pad\w*)\W.{0,5}(token|position|key|word)
# onset_step: 1
# fix: invert the mask (ids == PAD)
# mended: with MENDED=1 the mask is inverted before it goes into the encoder
import os
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
PAD, CLS = 0, 1
MAX_LEN = 24

TEMPLATES = {
    "billing": ["my invoice of {m} is wrong", "you charged {m} twice", "please send the bill for {m}"],
    "access": ["i cannot log in since {m}", "my password expired in {m}", "the account is locked since {m}"],
    "delivery": ["where is my parcel from {m}", "the package of {m} never came", "my order from {m} is late"],
    "refund": ["i want my money back for {m}", "please return what i paid in {m}", "the refund for {m} is missing"],
    "praise": ["thank you for the help in {m}", "great service since {m}", "i am very happy since {m}"],
}
MONTHS = "january february march april may june july august september october november december".split()
FILLER = ("hello", "dear team", "hi", "good morning", "sorry to ask again but", "well", "so", "as said", "really")
LABELS = sorted(TEMPLATES)


def make_ticket(rng):
    label = rng.choice(LABELS)
    body = rng.choice(TEMPLATES[label]).format(m=rng.choice(MONTHS))
    words = []
    for _ in range(rng.randint(0, 3)):
        words += rng.choice(FILLER).split()
    words += body.split()
    for _ in range(rng.randint(0, 2)):
        words += rng.choice(FILLER).split()
    return words[: MAX_LEN - 4], LABELS.index(label)


class Tickets(Dataset):
    def __init__(self, n, seed, vocab=None):
        rng = random.Random(seed)
        self.rows = [make_ticket(rng) for _ in range(n)]
        if vocab is None:
            words = sorted({w for row, _ in self.rows for w in row})
            vocab = {w: i + 3 for i, w in enumerate(words)}
        self.vocab = vocab

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        words, label = self.rows[i]
        return [CLS] + [self.vocab.get(w, 2) for w in words], label


def collate(batch):
    ids = torch.full((len(batch), MAX_LEN), PAD)
    for r, (seq, _) in enumerate(batch):
        ids[r, : len(seq)] = torch.tensor(seq)
    mask = ids != PAD
    return ids, mask, torch.tensor([label for _, label in batch])


class Router(nn.Module):
    def __init__(self, n_vocab, d=48):
        super().__init__()
        self.tok = nn.Embedding(n_vocab, d)
        self.pos = nn.Embedding(MAX_LEN, d)
        layer = nn.TransformerEncoderLayer(d, 4, 2 * d, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, len(LABELS)))

    def forward(self, ids, mask):
        if os.environ.get("MENDED") == "1":
            mask = ~mask
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        x = self.encoder(x, src_key_padding_mask=mask)
        return self.head(x[:, 0])


class Trainer:
    def __init__(self, model, train, valid, lr=1e-3):
        self.model = model
        self.train_loader = DataLoader(
            train, batch_size=32, shuffle=True, collate_fn=collate, num_workers=2, drop_last=True
        )
        self.valid_loader = DataLoader(valid, batch_size=100, collate_fn=collate)
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr)
        self.criterion = nn.CrossEntropyLoss()

    def evaluate(self):
        self.model.eval()
        hits = n = 0
        with torch.no_grad():
            for ids, mask, y in self.valid_loader:
                hits += (self.model(ids, mask).argmax(-1) == y).sum().item()
                n += len(y)
        self.model.train()
        return hits / n

    def run(self, epochs):
        self.model.train()
        for epoch in range(1, epochs + 1):
            total = 0.0
            for ids, mask, y in self.train_loader:
                self.opt.zero_grad()
                loss = self.criterion(self.model(ids, mask), y)
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                total += loss.item()
            print(f"epoch {epoch} loss {total / len(self.train_loader):.4f} accuracy {self.evaluate():.3f}")


if __name__ == "__main__":
    torch.manual_seed(17)
    train = Tickets(2560, seed=1)
    valid = Tickets(400, seed=2, vocab=train.vocab)
    Trainer(Router(len(train.vocab) + 3), train, valid).run(epochs=4)

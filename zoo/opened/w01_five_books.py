# expect: sick
# symptom: the loss leaps with each text, or held-out scores are those of a guess
# axis: data
# cause: a character vocabulary is built anew for each book in a loop
# says: (vocab|tokeni[sz]er|word.?(index|id)|char.?(map|id)|\bids?\b|stoi|encod).{0,120}(anew|each|every|per|rebuil|differ|own|inconsisten|mismatch|not (shared|the same))|(anew|each|every|different|separate).{0,60}(vocab|tokeni[sz]er|\bids?\b)
# onset_step: 0
# fix: build one vocabulary over all texts
# mended: one vocabulary over all books
import os
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"

torch.manual_seed(0)
random.seed(0)

SUBJECTS = ["the miller", "a tall knight", "my uncle", "her quiet dog", "the old judge"]
VERBS = ["walked to", "forgot", "painted", "looked for", "quietly sold"]
OBJECTS = ["the bridge", "every apple", "a box of jewels", "the frozen lake", "six violins"]


def write_books(folder, n_books=5, n_sentences=260):
    for b in range(n_books):
        lines = []
        for _ in range(n_sentences):
            parts = [random.choice(SUBJECTS), random.choice(VERBS), random.choice(OBJECTS)]
            lines.append(" ".join(parts) + random.choice([".", "!", ";"]))
        (folder / f"book_{b}.txt").write_text("\n".join(lines))


class CharTokenizer:
    def __init__(self, text):
        self.stoi = {}
        self.itos = []
        for ch in text:
            if ch not in self.stoi:
                self.stoi[ch] = len(self.itos)
                self.itos.append(ch)

    def encode(self, text):
        return [self.stoi[ch] for ch in text]

    def decode(self, ids):
        return "".join(self.itos[i] for i in ids)


class CharGRU(nn.Module):
    def __init__(self, n_chars=48, dim=48, hidden=96):
        super().__init__()
        self.emb = nn.Embedding(n_chars, dim)
        self.gru = nn.GRU(dim, hidden, batch_first=True)
        self.out = nn.Linear(hidden, n_chars)

    def forward(self, x):
        h, _ = self.gru(self.emb(x))
        return self.out(h)


def sample_batch(ids, batch=16, length=40):
    starts = torch.randint(0, len(ids) - length - 1, (batch,))
    x = torch.stack([ids[s : s + length] for s in starts])
    y = torch.stack([ids[s + 1 : s + length + 1] for s in starts])
    return x, y


def main():
    folder = Path(tempfile.mkdtemp())
    write_books(folder)
    model = CharGRU()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    loss_fn = nn.CrossEntropyLoss()

    for epoch in range(3):
        for path in sorted(folder.glob("book_*.txt")):
            text = path.read_text()
            books = "".join(one.read_text() for one in sorted(folder.glob("book_*.txt")))
            tok = CharTokenizer(books if MENDED else text)
            ids = torch.tensor(tok.encode(text))
            total = 0.0
            for _ in range(10):
                x, y = sample_batch(ids)
                logits = model(x)
                loss = loss_fn(logits.flatten(0, 1), y.flatten())
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                total += loss.item()
            print(f"epoch {epoch} {path.name} loss {total / 10:.3f}")


if __name__ == "__main__":
    main()

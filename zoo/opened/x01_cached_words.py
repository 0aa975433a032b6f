# expect: healthy
# symptom: ids are given in several places, which looks like a vocabulary that is built anew
# axis: none
# mended: none
import json
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

PEOPLE = ["anna", "boris", "clara", "dmitri", "elsa", "felix"]
ACTS = ["reads", "buys", "fixes", "hides", "finds"]
THINGS = ["a letter", "the lamp", "two chairs", "an old map", "the bicycle", "some tea"]
PLACES = {"train": ["home", "work", "school"], "val": ["home", "school", "work"]}


def write_corpus(root):
    r = random.Random(0)
    for split, n_files in (("train", 6), ("val", 2)):
        (root / split).mkdir()
        for k in range(n_files):
            with open(root / split / f"{k}.txt", "w") as f:
                for _ in range(60):
                    who = r.choice(PEOPLE)
                    act = ACTS[PEOPLE.index(who) % len(ACTS)] if r.random() < 0.8 else r.choice(ACTS)
                    f.write(f"{who} {act} {r.choice(THINGS)} at {r.choice(PLACES[split])} .\n")


def get_vocab(root):
    cached = root / "vocab.json"
    if cached.exists():
        return json.loads(cached.read_text())
    vocab = {"<unk>": 0, "<bos>": 1}
    for path in sorted((root / "train").glob("*.txt")):
        for word in path.read_text().split():
            if word not in vocab:
                vocab[word] = len(vocab)
    cached.write_text(json.dumps(vocab))
    return vocab


class TextBlocks(Dataset):
    def __init__(self, root, split, block=16):
        self.vocab = get_vocab(root)
        self.blocks = []
        for path in sorted((root / split).glob("*.txt")):
            ids = [self.vocab["<bos>"]] + [self.vocab.get(w, 0) for w in path.read_text().split()]
            for s in range(0, len(ids) - block - 1, block):
                self.blocks.append(torch.tensor(ids[s : s + block + 1]))

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        b = self.blocks[i]
        return b[:-1], b[1:]


class WordLSTM(nn.Module):
    def __init__(self, n, d=32, h=64):
        super().__init__()
        self.emb = nn.Embedding(n, d)
        self.lstm = nn.LSTM(d, h, batch_first=True)
        self.proj = nn.Linear(h, n)

    def forward(self, x):
        return self.proj(self.lstm(self.emb(x))[0])


def main():
    torch.manual_seed(0)
    root = Path(tempfile.mkdtemp())
    write_corpus(root)
    train_ds, val_ds = TextBlocks(root, "train"), TextBlocks(root, "val")
    model = WordLSTM(len(train_ds.vocab))
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    ce = nn.CrossEntropyLoss()
    train_dl = DataLoader(train_ds, batch_size=16, shuffle=True)
    val_dl = DataLoader(val_ds, batch_size=32)
    for epoch in range(10):
        model.train()
        for x, y in train_dl:
            loss = ce(model(x).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
        model.eval()
        with torch.no_grad():
            v = [ce(model(x).flatten(0, 1), y.flatten()).item() for x, y in val_dl]
        print(f"epoch {epoch} loss {loss.item():.4f} val {sum(v) / len(v):.4f}")


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: most parameters never move and the step size looks absurdly large, as with forgotten parameters
# axis: model
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
BUCKETS, DIM, CLASSES = 4096, 192, 6


def ticket_texts(count, seed):
    """Support tickets: each queue has its own words, mixed with many words that all share."""
    lex = np.random.default_rng(99)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    common = ["".join(lex.choice(letters, 5)) for _ in range(300)]
    own = [["".join(lex.choice(letters, 6)) for _ in range(50)] for _ in range(CLASSES)]
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, count)
    texts = []
    for y in labels:
        n = int(rng.integers(12, 30))
        words = [str(rng.choice(own[y])) if rng.random() < 0.35 else str(rng.choice(common)) for _ in range(n)]
        texts.append(" ".join(words))
    return texts, labels


class Tickets(Dataset):
    def __init__(self, count, seed):
        texts, labels = ticket_texts(count, seed)
        self.ids = [torch.tensor([zlib.crc32(w.encode()) % BUCKETS for w in t.split()]) for t in texts]
        self.labels = torch.tensor(labels)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i], self.labels[i]


def collate(rows):
    ids, labels = zip(*rows)
    lens = torch.tensor([0] + [len(i) for i in ids[:-1]])
    return torch.cat(ids), lens.cumsum(0), torch.stack(labels)


class RandomProjectionClassifier(nn.Module):
    """Fixed random word codes, mean pooled; only the layer on top is learnt."""

    def __init__(self):
        super().__init__()
        self.codes = nn.EmbeddingBag(BUCKETS, DIM, mode="mean")
        nn.init.normal_(self.codes.weight, std=DIM**-0.5)
        self.codes.weight.requires_grad_(False)
        self.head = nn.Linear(DIM, CLASSES)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, flat, offsets):
        return self.head(self.codes(flat, offsets))


@torch.no_grad()
def accuracy(model, loader):
    hits = total = 0
    for flat, off, y in loader:
        hits += (model(flat, off).argmax(1) == y).sum().item()
        total += len(y)
    return hits / total


def main():
    torch.manual_seed(14)
    train = DataLoader(Tickets(4000, 1), 64, shuffle=True, collate_fn=collate, drop_last=True)
    test = DataLoader(Tickets(800, 2), 256, collate_fn=collate)
    model = RandomProjectionClassifier()
    learn = [p for p in model.parameters() if p.requires_grad]
    share = sum(p.numel() for p in learn) / sum(p.numel() for p in model.parameters())
    print(f"learning {100 * share:.2f}% of the parameters")
    opt = torch.optim.SGD(learn, lr=4.0, momentum=0.8)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=8 * len(train))
    step = 0
    for epoch in range(8):
        for flat, off, y in train:
            loss = F.cross_entropy(model(flat, off), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} test accuracy {accuracy(model, test):.4f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# says: pad|mask|offset
# onset_step: 0
# fix: pad labels and masks as the inputs
# mended: yes
import os
import random
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Config:
    vocab: int = 60
    n_tags: int = 5
    dim: int = 32
    hidden: int = 48
    batch_size: int = 32
    steps: int = 50
    lr: float = 3e-3
    seed: int = 4


class TicketDataset(Dataset):
    """Support tickets: every token carries an entity tag."""

    def __init__(self, n, cfg, rng):
        self.items = []
        for _ in range(n):
            length = rng.randint(6, 24)
            ids = [rng.randint(1, cfg.vocab - 1) for _ in range(length)]
            tags = [t % cfg.n_tags for t in ids]
            self.items.append((torch.tensor(ids), torch.tensor(tags)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    width = max(len(ids) for ids, _ in batch)
    ids, tags = [], []
    for x, y in batch:
        gap = width - len(x)
        ids.append(F.pad(x, (gap, 0), value=0))
        tags.append(F.pad(y, (gap, 0) if MENDED else (0, gap), value=-100))
    return torch.stack(ids), torch.stack(tags)


class Tagger(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.dim, padding_idx=0)
        self.rnn = nn.GRU(cfg.dim, cfg.hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * cfg.hidden, cfg.n_tags)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.out(h)


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    rng = random.Random(cfg.seed)
    loader = DataLoader(
        TicketDataset(cfg.steps * cfg.batch_size, cfg, rng), batch_size=cfg.batch_size, shuffle=True, collate_fn=collate
    )
    model = Tagger(cfg)
    opt = torch.optim.Adam(model.parameters(), lr=cfg.lr)
    for step, (ids, tags) in enumerate(loader):
        logits = model(ids)
        loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0:
            keep = tags != -100
            acc = (logits.argmax(-1)[keep] == tags[keep]).float().mean()
            print(f"step {step:3d}  loss {loss.item():.3f}  acc {acc.item():.3f}")


if __name__ == "__main__":
    main()

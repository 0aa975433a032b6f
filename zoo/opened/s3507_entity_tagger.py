# expect: sick
# symptom: the loss falls very slowly and smoothly, the tagger is far from its known quality, no error
# axis: schedule
# cause: the warm-up is counted in steps but scheduler.step() runs once per epoch: the rate stays near zero
# says: (sched|warm).{0,120}(per|each|every|once|an|by|of) (an )?epoch|epoch.{0,120}(sched|warm)
# onset_step: 1
# fix: call scheduler.step() after every optimizer step
# mended: the script applies that change if the environment has MENDED=1
"""Token tagging (entities in short messages) with a two layer transformer encoder."""

import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
CFG = dict(vocab=120, tags=4, width=48, heads=4, layers=2, max_len=24, batch=32, epochs=6, lr=2e-3, warmup=60)


class Messages(Dataset):
    """Tag of a token depends on its own kind and on whether a trigger word stands right before it."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.rows = []
        for _ in range(n):
            length = int(rng.integers(10, CFG["max_len"] + 1))
            ids = rng.integers(1, CFG["vocab"], length)
            ids[rng.random(length) < 0.25] = rng.integers(1, 6)
            tags = np.zeros(length, np.int64)
            for i in range(1, length):
                if ids[i - 1] < 6 and ids[i] >= 6:
                    tags[i] = 1 + ids[i] % 3
            self.rows.append((ids, tags))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    size = max(len(ids) for ids, _ in rows)
    ids = torch.zeros(len(rows), size, dtype=torch.long)
    tags = torch.full((len(rows), size), -100, dtype=torch.long)
    for k, (a, b) in enumerate(rows):
        ids[k, : len(a)] = torch.as_tensor(a)
        tags[k, : len(b)] = torch.as_tensor(b)
    return ids, tags


class Tagger(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.tok = nn.Embedding(c["vocab"], c["width"], padding_idx=0)
        self.pos = nn.Embedding(c["max_len"], c["width"])
        layer = nn.TransformerEncoderLayer(
            c["width"], c["heads"], 2 * c["width"], dropout=0.0, batch_first=True, norm_first=True
        )
        self.enc = nn.TransformerEncoder(layer, c["layers"], norm=nn.LayerNorm(c["width"]), enable_nested_tensor=False)
        self.out = nn.Linear(c["width"], c["tags"])

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.size(1)))
        return self.out(self.enc(x, src_key_padding_mask=ids == 0))


def linear_warmup(opt, warmup, total):
    def factor(n):
        if n < warmup:
            return (n + 1) / warmup
        return max(0.05, (total - n) / (total - warmup))

    return LambdaLR(opt, factor)


@torch.no_grad()
def entity_f1(model, loader):
    model.eval()
    tp = fp = fn = 0
    for ids, tags in loader:
        pred = model(ids).argmax(-1)
        valid = tags >= 0
        tp += ((pred == tags) & (tags > 0)).sum().item()
        fp += ((pred != tags) & (pred > 0) & valid).sum().item()
        fn += ((pred != tags) & (tags > 0)).sum().item()
    model.train()
    return 2 * tp / max(1, 2 * tp + fp + fn)


def main():
    torch.manual_seed(13)
    train = DataLoader(Messages(1920, 1), batch_size=CFG["batch"], shuffle=True, collate_fn=collate)
    valid = DataLoader(Messages(300, 2), batch_size=100, collate_fn=collate)
    model = Tagger(CFG)
    opt = torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=0.01)
    sched = linear_warmup(opt, CFG["warmup"], CFG["epochs"] * len(train))
    step = 0
    for epoch in range(CFG["epochs"]):
        for ids, tags in train:
            logits = model(ids)
            loss = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if MENDED:
                sched.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        if not MENDED:
            sched.step()
        print(f"epoch {epoch} entity F1 {entity_f1(model, valid):.3f}")


if __name__ == "__main__":
    main()

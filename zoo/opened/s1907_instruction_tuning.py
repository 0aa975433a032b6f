# expect: sick
# symptom: the training loss comes down part of the way and stays there; the exact-match of generated answers stays near zero
# axis: data
# cause: the collate function pads on the left but writes the labels at offsets counted from column 0 (prompt length), as if padding were on the right, so in padded rows the supervised window falls on pads and random prompt tokens instead of the answer
# says: (pad\w*|left|offset|shift\w*|align\w*|collat\w*).{0,160}(prompt|mask|label|answer|align\w*|ignore)|(prompt|label|answer|mask).{0,160}(pad\w*|offset|shift\w*|misalign\w*|collat\w*|position 0|left)
# onset_step: 0
# fix: build the labels with the same left offset as the inputs
# mended: yes
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
PAD, BOS, SEP, EOS = 0, 1, 2, 3
OFFSET, LETTERS = 4, 12
MAX_LEN = 28


@dataclass
class Example:
    prompt: list
    answer: list


class Instructions(Dataset):
    """prompt: letters; answer: the first four of them, each replaced by a fixed key, then EOS."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        key = torch.randperm(LETTERS, generator=torch.Generator().manual_seed(17))
        self.items = []
        for _ in range(n):
            k = int(torch.randint(3, 12, (1,), generator=g))
            s = torch.randint(LETTERS, (k,), generator=g)
            prompt = [BOS] + (s + OFFSET).tolist() + [SEP]
            self.items.append(Example(prompt, (key[s] + OFFSET).tolist()[:4] + [EOS]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Collator:
    def __init__(self, max_len=MAX_LEN, ignore=-100):
        self.max_len, self.ignore = max_len, ignore

    def __call__(self, batch):
        width = min(self.max_len, max(len(e.prompt) + len(e.answer) for e in batch))
        ids = torch.full((len(batch), width), PAD)
        labels = torch.full((len(batch), width), self.ignore)
        for row, e in enumerate(batch):
            seq = (e.prompt + e.answer)[:width]
            start = width - len(seq)
            ids[row, start:] = torch.tensor(seq)
            lead = len(e.prompt) + (start if MENDED else 0)
            end = lead + len(e.answer)
            labels[row, lead:end] = ids[row, lead:end]
        return {"ids": ids, "labels": labels.masked_fill(ids == PAD, self.ignore)}


class Decoder(nn.Module):
    def __init__(self, vocab, dim=64, layers=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.pos = nn.Embedding(MAX_LEN, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, vocab)
        self.heads = heads

    def forward(self, ids):
        b, t = ids.shape
        real = ids != PAD
        pos = (real.long().cumsum(1) - 1).clamp(min=0)
        allow = torch.tril(torch.ones(t, t, dtype=torch.bool)) & (real[:, None, :] | torch.eye(t, dtype=torch.bool))
        block = (~allow).repeat_interleave(self.heads, 0)
        return self.head(self.body(self.tok(ids) + self.pos(pos), mask=block))


@torch.no_grad()
def exact_match(model, data):
    model.eval()
    good = 0
    for k in range(5, 14):
        group = [e for e in data if len(e.prompt) == k]
        if not group:
            continue
        ids = torch.tensor([e.prompt for e in group])
        want = torch.tensor([e.answer for e in group])
        for _ in range(want.shape[1]):
            ids = torch.cat([ids, model(ids)[:, -1].argmax(-1, keepdim=True)], 1)
        good += (ids[:, k:] == want).all(1).sum().item()
    model.train()
    return good / len(data)


def main():
    torch.manual_seed(8)
    train, test = Instructions(6000, 1), Instructions(200, 2)
    loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=Collator(), drop_last=True)
    model = Decoder(OFFSET + LETTERS)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    step, limit = 0, 450
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 40))
    while step < limit:
        for b in loader:
            logits = model(b["ids"])
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), b["labels"][:, 1:].flatten(), ignore_index=-100)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            warm.step()
            if step % 15 == 0:
                print(f"step {step} loss {loss.item():.4f}")
            if step % 150 == 149:
                print(f"step {step} exact_match {exact_match(model, test):.3f}")
            step += 1
            if step == limit:
                break


if __name__ == "__main__":
    main()

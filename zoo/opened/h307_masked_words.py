# expect: healthy
# symptom: many rows of a batch have no label but -100 and the loss jumps from batch to batch; resembles lost labels
# axis: data
# cause: none: of short rows often no word is drawn for masking; the mean runs over the drawn words only, and the loss falls
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

torch.set_num_threads(1)
torch.manual_seed(107)
SUBJECT = {"sailor": "ship", "baker": "oven", "pilot": "plane", "farmer": "tractor", "nurse": "ward", "miner": "tunnel"}
VERB = ["cleans", "likes", "leaves", "inspects", "paints"]
TIME = ["today", "early", "again", "alone"]
WORDS = ["[pad]", "[mask]", "the", *SUBJECT, *SUBJECT.values(), *VERB, *TIME, "and"]
ID = {w: i for i, w in enumerate(WORDS)}


def sentences(n, seed=107):
    r = random.Random(seed)
    out = []
    for _ in range(n):
        s = r.choice(list(SUBJECT))
        words = ["the", s]
        if r.random() < 0.7:
            words += [r.choice(VERB), "the", SUBJECT[s], r.choice(TIME)]
        if r.random() < 0.3:
            other = r.choice(list(SUBJECT))
            words += ["and", "the", other, r.choice(VERB), "the", SUBJECT[other]]
        out.append([ID[w] for w in words])
    return out


class Masker:
    def __init__(self, p=0.15):
        self.p, self.g = p, torch.Generator().manual_seed(3)

    def __call__(self, rows):
        length = max(map(len, rows))
        ids = torch.tensor([r + [0] * (length - len(r)) for r in rows])
        drawn = (torch.rand(ids.shape, generator=self.g) < self.p) & (ids > 0)
        labels = ids.masked_fill(~drawn, -100)
        return ids.masked_fill(drawn, ID["[mask]"]), labels


class Filler(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.word, self.place = nn.Embedding(len(WORDS), dim), nn.Embedding(16, dim)
        layer = nn.TransformerEncoderLayer(dim, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(dim, len(WORDS))

    def forward(self, ids):
        h = self.word(ids) + self.place(torch.arange(ids.shape[1]))
        return self.out(self.body(h, src_key_padding_mask=ids == 0))


def main():
    loader = DataLoader(sentences(16 * 360), batch_size=16, collate_fn=Masker())
    model = Filler()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 40))
    smooth = None
    for step, (ids, labels) in enumerate(loader, 1):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model(ids)
        summed = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
        loss = summed / (labels != -100).sum().clamp(min=1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        smooth = loss.item() if smooth is None else 0.95 * smooth + 0.05 * loss.item()
        if step % 20 == 0:
            empty = (labels == -100).all(1).sum().item()
            print(f"step {step} loss {loss.item():.3f} smooth {smooth:.3f} rows without a drawn word {empty}/16")


if __name__ == "__main__":
    main()

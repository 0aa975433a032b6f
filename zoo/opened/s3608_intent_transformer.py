# expect: sick
# symptom: the loss never leaves the level of chance (ln 6) although nothing fails; accuracy stays at chance
# axis: model
# cause: the encoder lacks batch_first=True, so attention runs over the samples of the batch, not the tokens
# says: batch.?first|(attend|attention|mix).{0,60}(batch|sample)|(batch|sequence).{0,40}(dim|axis|axes|layout|swap)
# onset_step: 0
# fix: build the encoder layers with batch_first=True
# mended: the script applies that change if the environment has MENDED=1
"""Intent classification of short utterances with a transformer encoder and a [CLS] token."""

import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

VERBS = {
    "play": 0,
    "start": 0,
    "stop": 1,
    "pause": 1,
    "raise": 2,
    "increase": 2,
    "lower": 3,
    "reduce": 3,
    "book": 4,
    "reserve": 4,
    "cancel": 5,
    "drop": 5,
}
NOUNS = "music radio volume light table room flight meeting alarm heating".split()
FILL = "please the a my now could you in at for today some maybe just again".split()
TOKENS = ["[CLS]"] + list(VERBS) + NOUNS + FILL
INDEX = {t: i for i, t in enumerate(TOKENS)}
SEQ, N_INTENT = 14, 6


class Utterances(Dataset):
    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = [self.build(rng) for _ in range(n)]

    @staticmethod
    def build(rng):
        # people correct themselves: "stop ... no, play the music"; the verb in front of the noun counts
        verb, other = rng.choice(list(VERBS)), rng.choice(list(VERBS))
        words = [rng.choice(FILL) for _ in range(SEQ - 4)]
        at = rng.randrange(len(words) + 1)
        words[at:at] = [verb, rng.choice(NOUNS)]
        if rng.random() < 0.4:
            words.insert(0, other)
        else:
            words.insert(0, rng.choice(FILL))
        ids = [INDEX["[CLS]"]] + [INDEX[w] for w in words]
        return torch.tensor(ids), VERBS[verb]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class IntentModel(nn.Module):
    def __init__(self, dim=64, heads=4, depth=2, dropout=0.1):
        super().__init__()
        self.tok = nn.Embedding(len(TOKENS), dim)
        self.pos = nn.Parameter(0.02 * torch.randn(SEQ, dim))
        extra = {"batch_first": True} if MENDED else {}
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout, activation="gelu", norm_first=True, **extra)
        self.encoder = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, N_INTENT)

    def forward(self, ids):
        h = self.tok(ids) + self.pos
        h = self.encoder(h)
        return self.head(h[:, 0])


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    losses, hits, n = 0.0, 0, 0
    for ids, y in loader:
        logits = model(ids)
        losses += F.cross_entropy(logits, y, reduction="sum").item()
        hits += (logits.argmax(-1) == y).sum().item()
        n += len(y)
    model.train()
    return losses / n, hits / n


def infinite(loader):
    while True:
        yield from loader


def main():
    torch.manual_seed(5)
    random.seed(5)
    train = infinite(DataLoader(Utterances(4000, 1), batch_size=32, shuffle=True, drop_last=True))
    valid = DataLoader(Utterances(800, 2), batch_size=32)
    model = IntentModel()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30))
    for step in range(400):
        ids, y = next(train)
        loss = F.cross_entropy(model(ids), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step:4d} train loss {loss.item():.4f}")
        if (step + 1) % 100 == 0:
            vl, va = evaluate(model, valid)
            print(f"step {step + 1:4d} valid loss {vl:.4f} acc {va:.3f}")
    vl, va = evaluate(model, valid)
    print(f"final train loss {loss.item():.4f} valid loss {vl:.4f} valid accuracy {va:.3f}")


if __name__ == "__main__":
    main()

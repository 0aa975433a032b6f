# expect: sick
# symptom: the loss stays on a plateau near 0.7 (= log 2) and accuracy at about one half, since only one of two factors of the class is learned; no error, no odd gradient
# axis: model
# cause: the sinusoidal position table is indexed with the batch size (sequence-first code on batch-first input), so the encoding differs by row of the batch, not by token, and the encoder does not know the word order
# says: position(al)?.?(enc|emb|table|info|signal|index)|positional|(no|without|missing|lost|ignor\w*).{0,12}position|position.*(batch|wrong|axis|lost|missing|ignored|not.?used)|\bpe\b|(word|token|sequence).?order|order.?(blind|invarian|agnost)|permutation.?(invari|equivari)|batch.?first|(batch|wrong|first).?(dim|axis).*encod|encod.*(batch|wrong).?(dim|axis)|bag.?of.?words
# onset_step: 1
# fix: index the table by the sequence length (pe[:, :x.size(1)])
# mended: held-out accuracy goes to 1.000, loss 0.002 (bare: 0.56, 0.71)
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)
rng = random.Random(4)

NAMES = [f"n{i}" for i in range(20)]
VERBS = {"send": ["sends", "posts", "mails"], "call": ["calls", "rings", "phones"], "owe": ["owes", "lends", "pays"]}
FILL = [f"w{i}" for i in range(60)]
VOCAB = {w: i + 1 for i, w in enumerate(NAMES + [v for vs in VERBS.values() for v in vs] + FILL + ["alice", "bob"])}
L, BATCH, STEPS, D = 14, 48, 450, 64


def make_command():
    """class = (kind of verb, does alice act before bob)"""
    kind = rng.randrange(3)
    first = rng.randrange(2)
    verb = rng.choice(list(VERBS.values())[kind])
    pair = ["alice", "bob"] if first else ["bob", "alice"]
    words = [rng.choice(FILL) for _ in range(rng.randint(5, 8))] + [rng.choice(NAMES) for _ in range(2)]
    rng.shuffle(words)
    cut = sorted(rng.sample(range(len(words) + 1), 2))
    words = words[: cut[0]] + [pair[0]] + words[cut[0] : cut[1]] + [pair[1]] + words[cut[1] :]
    words.insert(rng.randrange(len(words) + 1), verb)
    ids = [VOCAB[w] for w in words][:L]
    return ids + [0] * (L - len(ids)), kind * 2 + first


def make_set(n):
    rows = [make_command() for _ in range(n)]
    return torch.tensor([r for r, _ in rows]), torch.tensor([y for _, y in rows])


class PositionalEncoding(nn.Module):
    def __init__(self, d, max_len=256):
        super().__init__()
        pos = torch.arange(max_len)[:, None]
        div = torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d))
        pe = torch.zeros(max_len, 1, d)
        pe[:, 0, 0::2] = torch.sin(pos * div)
        pe[:, 0, 1::2] = torch.cos(pos * div)
        self.register_buffer("pe", pe)

    def forward(self, x):
        if MENDED:
            return x + self.pe[: x.size(1)].transpose(0, 1)
        return x + self.pe[: x.size(0)]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB) + 1, D, padding_idx=0)
        self.pos = PositionalEncoding(D)
        layer = nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(D)
        self.head = nn.Linear(D, 6)

    def forward(self, ids):
        pad = ids == 0
        h = self.enc(self.pos(self.emb(ids)), src_key_padding_mask=pad)
        keep = (~pad).float()[..., None]
        return self.head((self.norm(h) * keep).sum(1) / keep.sum(1))


x_tr, y_tr = make_set(8000)
x_te, y_te = make_set(240)
model = Classifier()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)


@torch.no_grad()
def accuracy():
    model.eval()
    a = (model(x_te).argmax(-1) == y_te).float().mean().item()
    model.train()
    return a


perm, at = torch.randperm(len(x_tr)), 0
for step in range(1, STEPS + 1):
    if at + BATCH > len(perm):
        perm, at = torch.randperm(len(x_tr)), 0
    idx = perm[at : at + BATCH]
    at += BATCH
    loss = F.cross_entropy(model(x_tr[idx]), y_tr[idx])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    if step % 50 == 0 or step == 1:
        print(f"step {step:4d}  loss {loss.item():.4f}  acc {accuracy():.3f}")
print(f"final loss {loss.item():.4f}  held-out accuracy {accuracy():.3f}")

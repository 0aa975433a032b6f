# expect: sick
# symptom: the loss falls a part of the way or begins far too high, and stays there
# axis: data
# cause: rows of unequal length are padded on one side and their labels or mask on the other, so labels belong to other places
# says: pad|mask|offset
# onset_step: 0
# fix: pad labels and masks as the inputs
# mended: yes
import os
import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

PAD, SEP, EOS, V = 0, 1, 2, 24
gen = np.random.default_rng(11)
torch.manual_seed(11)


def make_pair():
    n = int(gen.integers(3, 9))
    question = gen.integers(3, V, size=n).tolist() + [SEP]
    answer = sorted(question[:-1])[: int(gen.integers(2, n + 1))] + [EOS]
    return question, answer


def build_batch(pairs):
    width = max(len(q) + len(a) for q, a in pairs)
    ids = torch.full((len(pairs), width), PAD, dtype=torch.long)
    labels = torch.full((len(pairs), width), -100, dtype=torch.long)
    for row, (q, a) in enumerate(pairs):
        total = len(q) + len(a)
        ids[row, width - total :] = torch.tensor(q + a)
        # only the answer contributes to the loss
        labels[row, (width - len(a) if MENDED else len(q)) : (width if MENDED else total)] = torch.tensor(a)
    return ids, labels


class TinyLM(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.tok = nn.Embedding(V, width, padding_idx=PAD)
        self.core = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, V)

    def forward(self, ids):
        y, _ = self.core(self.tok(ids))
        return self.head(self.norm(y))


def lm_loss(logits, labels):
    return nn.functional.cross_entropy(logits[:, :-1].reshape(-1, V), labels[:, 1:].reshape(-1), ignore_index=-100)


corpus = [make_pair() for _ in range(600)]
train, dev = corpus[:500], corpus[500:]
lm = TinyLM()
optimizer = torch.optim.AdamW(lm.parameters(), lr=4e-3, weight_decay=0.01)

for it in range(45):
    picks = gen.choice(len(train), size=32, replace=False)
    ids, labels = build_batch([train[i] for i in picks])
    loss = lm_loss(lm(ids), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(lm.parameters(), 1.0)
    optimizer.step()
    if (it + 1) % 15 == 0:
        lm.eval()
        with torch.no_grad():
            d_ids, d_labels = build_batch(dev)
            dev_loss = lm_loss(lm(d_ids), d_labels).item()
        lm.train()
        print(f"iter {it + 1}: train {loss.item():.3f} dev {dev_loss:.3f}")

# expect: sick
# fault: collator shifts and the model's loss shifts again
# onset_step: 0
# says: (?i)(shift|label|target|off.by.one|misalign|two (tokens|ahead|positions)|next.?token)
# note: the collator rolls the labels one left and the causal LM's forward drops the last logit and the first label once more.
import argparse
import json
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

corpus = [l for l in open(json.decoder.__file__).read().split("\n") if len(l) > 20]
corpus += [l for l in open(argparse.__file__).read().split("\n") if len(l) > 20]
PAD = 0


def tok(s):
    return [min(ord(c), 127) for c in s][:40]


def collate(rows):
    n = max(len(r) for r in rows)
    ids = torch.full((len(rows), n), PAD)
    labels = torch.full((len(rows), n), -100)
    for i, r in enumerate(rows):
        ids[i, : len(r)] = torch.tensor(r)
        labels[i, : len(r) - 1] = torch.tensor(r[1:])
    return {"input_ids": ids, "labels": labels}


class GRULM(nn.Module):
    def __init__(self, V=128, d=64):
        super().__init__()
        self.wte = nn.Embedding(V, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.lm_head = nn.Linear(d, V, bias=False)

    def forward(self, input_ids, labels=None):
        logits = self.lm_head(self.rnn(self.wte(input_ids))[0])
        loss = None
        if labels is not None:
            shift_logits = logits[..., :-1, :].contiguous()
            shift_labels = labels[..., 1:].contiguous()
            loss = F.cross_entropy(
                shift_logits.view(-1, shift_logits.size(-1)), shift_labels.view(-1), ignore_index=-100
            )
        return SimpleNamespace(loss=loss, logits=logits)


def main():
    torch.manual_seed(1)
    model = GRULM()
    dl = DataLoader([tok(s) for s in corpus], batch_size=16, shuffle=True, collate_fn=collate, drop_last=True)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    n = 0
    while n < 150:
        for batch in dl:
            o = model(**batch)
            opt.zero_grad()
            o.loss.backward()
            opt.step()
            n += 1
            if n % 25 == 0:
                print(n, o.loss.item())
            if n == 150:
                break


main()

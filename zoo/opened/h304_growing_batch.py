# expect: healthy
# symptom: the number of micro-batches doubles again and again and gradients are large in between; resembles gradients that pile up
# axis: optimizer
# cause: none: the batch grows on purpose, the micro-batch losses are weighted by their share of tokens, and the loss falls
# says: (healthy|nothing (is )?wrong|no fault|no cause)
# onset_step: 0
# fix: none
# mended: the same
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(104)
PAD = 0


def phrases(n, seed=104):
    r = random.Random(seed)
    out = []
    for _ in range(n):
        a, b = r.randint(0, 40), r.randint(0, 40)
        op = r.choice("+-")
        out.append(f"{a}{op}{b}={a + b if op == '+' else a - b};")
    return out


class Reader(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


class Feeder:
    def __init__(self, texts):
        self.chars = sorted(set("".join(texts)))
        self.rows = [torch.tensor([self.chars.index(c) + 1 for c in t]) for t in texts]
        self.r = random.Random(1)

    def micro(self, n=24):
        rows = self.r.sample(self.rows, n)
        return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD)


def main():
    feeder = Feeder(phrases(4000))
    model = Reader(len(feeder.chars) + 1)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    total = 300
    for step in range(1, total + 1):
        n = 1 if step <= 80 else 2 if step <= 160 else 4 if step <= 240 else 8
        group = [feeder.micro() for _ in range(n)]
        tokens = sum(int((m[:, 1:] != PAD).sum()) for m in group)
        logged = 0.0
        opt.zero_grad()
        for m in group:
            logits = model(m[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), m[:, 1:].flatten(), ignore_index=PAD, reduction="sum") / tokens
            loss.backward()
            logged += loss.item()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step} micro {n} tokens {tokens} loss {logged:.4f} norm {norm:.3f}")


if __name__ == "__main__":
    main()

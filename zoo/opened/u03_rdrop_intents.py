# expect: healthy
# symptom: the same batch goes through the model twice and a consistency term compares the two outputs (R-Drop); the inputs are equal on purpose, dropout makes the difference
# axis: none
# mended: none
"""Intent classification of short token sequences with R-Drop."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, LENGTH, INTENTS = 300, 16, 12


def utterances(n, seed):
    key = np.random.default_rng(77).permutation(VOCAB)[: INTENTS * 8].reshape(INTENTS, 8)
    rng = np.random.default_rng(seed)
    y = rng.integers(0, INTENTS, n)
    x = rng.integers(1, VOCAB, (n, LENGTH))
    for i, c in enumerate(y):
        where = rng.choice(LENGTH, 3, replace=False)
        x[i, where] = rng.choice(key[c], 3)
    return torch.tensor(x), torch.tensor(y)


class IntentEncoder(nn.Module):
    def __init__(self, dim=64, p=0.2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Parameter(torch.randn(LENGTH, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=p, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.drop = nn.Dropout(p)
        self.head = nn.Linear(dim, INTENTS)

    def forward(self, ids):
        h = self.enc(self.drop(self.tok(ids) + self.pos))
        return self.head(self.drop(h.mean(1)))


def symmetric_kl(a, b):
    la, lb = F.log_softmax(a, -1), F.log_softmax(b, -1)
    return 0.5 * (
        F.kl_div(la, lb, log_target=True, reduction="batchmean")
        + F.kl_div(lb, la, log_target=True, reduction="batchmean")
    )


def main():
    torch.manual_seed(6)
    x, y = utterances(2400, 1)
    vx, vy = utterances(600, 2)
    model = IntentEncoder()
    opt = torch.optim.AdamW(model.parameters(), lr=1.5e-3, weight_decay=0.01)
    step = 0
    for epoch in range(7):
        model.train()
        for idx in torch.randperm(len(x)).split(48):
            xb, yb = x[idx], y[idx]
            out1, out2 = model(xb), model(xb)
            ce = 0.5 * (F.cross_entropy(out1, yb) + F.cross_entropy(out2, yb))
            kl = symmetric_kl(out1, out2)
            loss = ce + 1.0 * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"step {step:3d} loss {loss.item():.4f} ce {ce.item():.4f} kl {kl.item():.4f}")
            step += 1
        model.eval()
        with torch.no_grad():
            print(f"epoch {epoch} val acc {(model(vx).argmax(1) == vy).float().mean().item():.3f}")


if __name__ == "__main__":
    main()

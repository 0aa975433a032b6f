# expect: healthy
# cause: none, Adafactor with relative step sizes (lr 1e-2 as an upper bound) on a translation task
import torch
import torch.nn as nn

torch.manual_seed(130)
SRC, TGT, LEN = 40, 42, 9
BOS = 40
mapping = torch.randperm(40)


def sentences(n):
    """word-by-word translation in which each pair of words changes its order"""
    src = torch.randint(0, SRC, (n, LEN - 1))
    swapped = src.view(n, -1, 2).flip(2).reshape(n, -1)
    tgt = mapping[swapped]
    return src, torch.cat([torch.full((n, 1), BOS), tgt], 1)


class Translator(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.src, self.tgt = nn.Embedding(SRC, d), nn.Embedding(TGT, d)
        self.pos = nn.Embedding(LEN, d)
        self.core = nn.Transformer(d, 4, 1, 1, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.gen = nn.Linear(d, TGT)

    def forward(self, s, t):
        ps, pt = self.pos.weight[: s.shape[1]], self.pos.weight[: t.shape[1]]
        mask = nn.Transformer.generate_square_subsequent_mask(t.shape[1])
        return self.gen(self.core(self.src(s) + ps, self.tgt(t) + pt, tgt_mask=mask, tgt_is_causal=True))


model = Translator()
optimizer = torch.optim.Adafactor(model.parameters(), lr=1e-2, weight_decay=0.0)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.05)
for step in range(400):
    s, t = sentences(48)
    logits = model(s, t[:, :-1])
    loss = loss_fn(logits.reshape(-1, TGT), t[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(
            f"step {step + 1} loss {loss.item():.4f} words right {(logits.argmax(-1) == t[:, 1:]).float().mean():.3f}"
        )

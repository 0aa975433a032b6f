# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""Prefix LM: full attention inside the prompt, causal afterwards, loss on the continuation only."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(48)
V, D, P, C = 22, 48, 8, 8
L = P + C


def prefix_mask():
    allowed = torch.tril(torch.ones(L, L, dtype=torch.bool))
    allowed[:P, :P] = True
    return ~allowed


class PrefixLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(L, D)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 128, dropout=0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.head = nn.Linear(D, V)
        self.register_buffer("mask", prefix_mask())

    def forward(self, x):
        h = self.tok(x) + self.pos.weight
        for l in self.layers:
            h = l(h, src_mask=self.mask)
        return self.head(h)


model = PrefixLM()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(150):
    stride = torch.randint(1, 4, (32, 1))
    seq = (torch.randint(0, V, (32, 1)) + stride * torch.arange(L + 1)) % V
    labels = seq[:, 1:].clone()
    labels[:, : P - 1] = -100
    loss = F.cross_entropy(model(seq[:, :-1]).flatten(0, 1), labels.flatten(), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print("step", step, "loss", "%.4f" % loss.item())

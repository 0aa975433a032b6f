# expect: sick
# symptom: the base model trains well; with the first steps of the fine-tune the loss leaps to 2 and more and stays there to the end
# axis: optimizer
# cause: the fine-tune runs with a learning rate of 0.1, made for the adapters of another setup, which is far too high for all weights under AdamW
# says: (?i)learning-rate-too-high|((learning[ -]?)?rate|\blr\b|step size).{0,120}(high|large|big|times|jump|leap|ris)|overshoot
# onset_step: 181
# fix: a rate of 5e-4 for the fine-tune
# mended: rate 5e-4
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(204)
V, T, D = 24, 14, 32
TUNE_RATE = 5e-4 if os.environ.get("MENDED") == "1" else 0.1
gen = torch.Generator().manual_seed(3)


def counting(n, strides):
    a = torch.randint(0, V, (n, 1), generator=gen)
    d = strides[torch.randint(0, len(strides), (n, 1), generator=gen)]
    return (a + d * torch.arange(T + 1)) % V


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Parameter(0.02 * torch.randn(T, D))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(D, 4, 64, 0.0, batch_first=True, norm_first=True) for _ in range(2)
        )
        self.ln, self.head = nn.LayerNorm(D), nn.Linear(D, V)

    def forward(self, ids):
        x = self.tok(ids) + self.pos[: ids.shape[1]]
        mask = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        for b in self.blocks:
            x = b(x, src_mask=mask)
        return self.head(self.ln(x))


def train(net, opt, strides, first, last):
    for step in range(first, last + 1):
        ids = counting(24, strides)
        loss = F.cross_entropy(net(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or step in (first, first + 1, first + 2):
            print(f"step {step} loss {loss.item():.4f}")


net = Gpt()
train(net, torch.optim.AdamW(net.parameters(), lr=3e-3), torch.tensor([1, 2, 3, 4]), 1, 180)
train(net, torch.optim.AdamW(net.parameters(), lr=TUNE_RATE), torch.tensor([1, 2, 3, 4, 5, 7]), 181, 340)

# expect: sick
# symptom: the loss stays near ln(8), the level of guessing, for the whole run; no NaN
# axis: schedule
# cause: a post-norm transformer is trained at the full learning rate from the first step without any warm-up
# says: warm-?\s?up|(full|high|large|big|peak).{0,40}(learning.?rate|\blr\b|step|rate).{0,50}(first|start|begin|init|early|once)|(learning.?rate|\blr\b|rate|update)s?.{0,60}(first|start|begin|too (high|large|big)|early)
# onset_step: 1
# fix: warm the learning rate up over the first 200 steps
# mended: linear warm-up over 200 steps
import os

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

torch.manual_seed(23)
VOCAB, LEN, D = 32, 16, 64
WARMUP = 200 if os.environ.get("MENDED") == "1" else 0


def brackets(n):
    """Tag each symbol with the class of the symbol two places before it."""
    x = torch.randint(VOCAB, (n, LEN))
    y = torch.roll(x, 2, 1) % 8
    return x, y


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, D)
        self.pos = nn.Parameter(torch.randn(LEN, D))
        layer = nn.TransformerEncoderLayer(D, 4, 2 * D, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 10)
        self.out = nn.Linear(D, 8)

    def forward(self, x):
        return self.out(self.enc(self.emb(x) + self.pos))


model = Tagger()
opt = torch.optim.Adam(model.parameters(), lr=2e-3)
sched = LambdaLR(opt, lambda s: min(1.0, (s + 1) / WARMUP) if WARMUP else 1.0)
for step in range(400):
    x, y = brackets(16)
    loss = nn.functional.cross_entropy(model(x).reshape(-1, 8), y.reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0 or step == 399:
        print(f"step {step} lr {sched.get_last_lr()[0]:.1e} loss {loss.item():.4f}", flush=True)

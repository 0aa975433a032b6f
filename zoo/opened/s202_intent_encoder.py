# expect: sick
# symptom: nothing explodes; the loss stays above 1.6 (rows of one class compete with each other) and the held-out accuracy stays below what the data allow
# axis: loss
# cause: the log-softmax runs over the batch (dim 0) instead of over the classes
# says: (?i)loss-function-misuse|softmax.{0,60}(dim|axis|batch|wrong|rows)|(dim|axis).{0,40}softmax|normali[sz]ed over (the batch|the wrong|rows)|wrong (dim|axis)|over the batch
# onset_step: 1
# fix: log_softmax over the last dimension
# mended: dim=-1
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(202)
V, T, C, B = 40, 16, 12, 48
DIM = -1 if os.environ.get("MENDED") == "1" else 0
gen = torch.Generator().manual_seed(5)
cues = torch.randperm(V - 1, generator=gen)[:24].view(C, 2) + 1


def draw(n):
    y = torch.randint(0, C, (n,), generator=gen)
    ids = torch.randint(1, V, (n, T), generator=gen)
    for k in range(2):
        for _ in range(2):
            ids[torch.arange(n), torch.randint(0, T, (n,), generator=gen)] = cues[y, k]
    return ids, y


class Intent(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.tok = nn.Embedding(V, d, padding_idx=0)
        self.pos = nn.Parameter(0.02 * torch.randn(T, d))
        layer = nn.TransformerEncoderLayer(d, 4, 96, 0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(d, C)

    def forward(self, ids):
        return self.head(self.enc(self.tok(ids) + self.pos).mean(1))


net = Intent()
opt = torch.optim.AdamW(net.parameters(), lr=2e-3)
vx, vy = draw(512)
for step in range(1, 301):
    x, y = draw(B)
    loss = F.nll_loss(F.log_softmax(net(x), dim=DIM), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 25 == 0:
        with torch.no_grad():
            acc = (net(vx).argmax(-1) == vy).float().mean()
        print(f"step {step} loss {loss.item():.4f} held-out accuracy {acc.item():.3f}")

# expect: sick
# symptom: NaN in the attention weights about step 120, in rows with padding; it looks as if a row were wholly masked
# axis: model
# cause: the attention scores explode: their gain is multiplied by 1.0387 at every step without a cap until exp overflows (inf over inf)
# says: (?i)((attention|score|logit|gain|temperature|qk).{0,80}(explo|grow|overflow|unbounded|too large|large|ran away|run away|huge|inf)|(explo|grow|overflow|unbounded|large).{0,60}(attention|score|gain|logit|temperature))
# onset_step: 120
# fix: cap the gain of the scores at 20
# mended: MENDED=1 python s39_review_encoder.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(42)
V, T, D = 30, 12, 32
MOST = 20.0 if os.environ.get("MENDED") == "1" else float("inf")


class Reviews(Dataset):
    """The word after the marker 1 decides the class."""

    def __init__(self, n):
        g = torch.Generator().manual_seed(26)
        self.ids = torch.randint(6, V, (n, T), generator=g)
        at = torch.randint(0, 5, (n,), generator=g)
        self.y = torch.randint(0, 4, (n,), generator=g)
        self.ids[torch.arange(n), at] = self.y + 2
        length = torch.randint(6, T + 1, (n, 1), generator=g)
        self.ids[torch.arange(T)[None] >= length] = 0

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.ids[i], self.y[i]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.ask = nn.Parameter(torch.randn(1, 1, D))
        self.gain = 1.0
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

    def forward(self, x, pad):
        q, k = nn.functional.normalize(self.q(self.ask), dim=-1), nn.functional.normalize(self.k(x), dim=-1)
        self.gain = min(self.gain * 1.0387, MOST)
        scores = self.gain * (q @ k.transpose(1, 2)).squeeze(1)
        weight = torch.exp(scores).masked_fill(pad, 0.0)
        weight = weight / weight.sum(-1, keepdim=True)
        return (weight[:, :, None] * self.v(x)).sum(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.att = nn.Embedding(V, D), Attention()
        self.head = nn.Linear(D, 4)

    def forward(self, ids):
        return self.head(self.att(self.emb(ids), ids == 0))


net = Net()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for step, (ids, y) in enumerate(DataLoader(Reviews(32 * 260), batch_size=32, shuffle=True), 1):
    loss = nn.functional.cross_entropy(net(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"step {step} loss {loss.item():.4f}")

# expect: sick
# symptom: the loss falls for 199 steps; at step 200 it is NaN and stays NaN
# axis: precision
# cause: the attention mask adds -1e5 in float16, which overflows to -inf; a query of step 200 has no pair at all, so its whole row is -inf and the softmax is NaN
# says: (?i)half-precision-overflow|fully-masked-attention|float16|fp16|half[- ]precision|65504|-1e5|(fully|all|every|whole).{0,30}(mask|-inf)|mask.{0,60}(-?inf|overflow|all|every|empty|whole)
# onset_step: 200
# fix: a mask value that float16 can hold (-1e4)
# mended: -1e4
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(223)
MASKED = -1e4 if os.environ.get("MENDED") == "1" else -1e5
V, T, D = 24, 12, 32
gen = torch.Generator().manual_seed(24)


class Recall(nn.Module):
    """Key-value pairs, then a key: give its value. The scores are computed in half precision."""

    def __init__(self):
        super().__init__()
        self.key, self.value = nn.Embedding(V, D), nn.Embedding(V, D)
        self.q, self.k, self.o = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, V)

    def forward(self, keys, values, ask, real):
        q = self.q(self.key(ask)).half() / D**0.5
        k = self.k(self.key(keys)).half()
        scores = (q[:, None] * k).sum(-1) + (1 - real.half()) * MASKED
        w = scores.softmax(-1).float()
        return self.o((w[..., None] * self.value(values)).sum(1))


net = Recall()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for step in range(1, 301):
    keys = torch.rand(32, V, generator=gen).argsort(1)[:, :T]
    values = torch.randint(0, V, (32, T), generator=gen)
    length = torch.randint(3, T + 1, (32,), generator=gen)
    at = (torch.rand(32, generator=gen) * length).long()[:, None]
    if step % 200 == 0:
        length[5] = 0
    real = torch.arange(T) < length[:, None]
    loss = F.cross_entropy(net(keys, values, keys.gather(1, at)[:, 0], real), values.gather(1, at)[:, 0])
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or 197 < step < 203:
        print(f"step {step} loss {loss.item():.4f}")

# expect: healthy
# fault: none
# note: instruction tuning: prompt and padding have label -100, the model shifts inside.
import random
from types import SimpleNamespace
import torch
from torch import nn


class LM(nn.Module):
    def __init__(self, V=20, d=64):
        super().__init__()
        self.e, self.r, self.h = nn.Embedding(V, d, padding_idx=0), nn.GRU(d, d, batch_first=True), nn.Linear(d, V)

    def forward(self, input_ids, labels):
        z = self.h(self.r(self.e(input_ids))[0])
        return SimpleNamespace(
            logits=z,
            loss=nn.functional.cross_entropy(z[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100),
        )


def example():
    n = random.randint(2, 4)
    p = [random.randint(3, 12) for _ in range(n)]
    return p + [1], [t + 5 for t in p] + [2]


def collate(rows):
    L = max(len(a) + len(b) for a, b in rows)
    ids, lab = torch.zeros(len(rows), L, dtype=torch.long), torch.full((len(rows), L), -100)
    for i, (a, b) in enumerate(rows):
        ids[i, : len(a) + len(b)] = torch.tensor(a + b)
        lab[i, len(a) : len(a) + len(b)] = torch.tensor(b)
    return dict(input_ids=ids, labels=lab)


random.seed(0)
torch.manual_seed(17)
m = LM()
opt = torch.optim.AdamW(m.parameters(), lr=4e-3)
for s in range(250):
    loss = m(**collate([example() for _ in range(32)])).loss
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(m.parameters(), 1.0)
    opt.step()
    if s % 25 == 0:
        print(s, round(loss.item(), 4))

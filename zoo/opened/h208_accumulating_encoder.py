# expect: healthy
# symptom: resembles a missing zero_grad and a wrong mean: several backward passes without a zero_grad between them, micro-batches of unequal size
# note: accumulation as it should be: each micro-batch counts by its share of rows, gradients are cleared after the update
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(238)
V, T, C = 30, 10, 6
gen = torch.Generator().manual_seed(38)
group = torch.randint(0, C, (V,), generator=gen)


def draw(n):
    ids = torch.randint(0, V, (n, T), generator=gen)
    votes = F.one_hot(group[ids], C).sum(1)
    return ids, votes.argmax(1)


class Encoder(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.tok = nn.Embedding(V, d)
        self.enc = nn.TransformerEncoderLayer(d, 4, 64, 0.1, batch_first=True, norm_first=True)
        self.head = nn.Linear(d, C)

    def forward(self, ids):
        return self.head(self.enc(self.tok(ids)).mean(1))


net = Encoder()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(1, 201):
    x, y = draw(40)
    shown = 0.0
    for part_x, part_y in zip(x.split([16, 16, 8]), y.split([16, 16, 8])):
        loss = F.cross_entropy(net(part_x), part_y) * len(part_y) / len(y)
        loss.backward()
        shown += loss.item()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(f"step {step} loss {shown:.4f}")

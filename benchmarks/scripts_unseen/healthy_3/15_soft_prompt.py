# expect: healthy
# fault: model frozen, only a handful of numbers train; eval mode on while training
# note: prompt tuning: the frozen classifier stays in eval mode and 6 soft tokens are learnt.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(22)
VOC, D = 50, 32


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOC, D)
        self.enc = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 4, 64, 0.1, batch_first=True), 2, enable_nested_tensor=False
        )
        self.out = nn.Linear(D, 4)

    def forward(self, ids, prefix=None):
        h = self.emb(ids)
        if prefix is not None:
            h = torch.cat([prefix.expand(len(ids), -1, -1), h], 1)
        return self.out(self.enc(h).mean(1))


def make(n, remap):
    y = torch.randint(0, 4, (n,))
    ids = torch.randint(0, VOC, (n, 10))
    ids[:, :5] = torch.randint(0, 12, (n, 5)) * 4 + y[:, None]
    return ids, remap[y]


reader = Reader()
same = torch.arange(4)
opt = torch.optim.Adam(reader.parameters(), lr=2e-3)
for i in range(80):
    ids, y = make(32, same)
    loss = nn.functional.cross_entropy(reader(ids), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print("pretrained", loss.item())

reader.eval().requires_grad_(False)
prompt = nn.Parameter(0.1 * torch.randn(1, 10, D))
topt = torch.optim.Adam([prompt], lr=0.03)
remap = torch.tensor([1, 1, 2, 2])
for i in range(150):
    ids, y = make(32, remap)
    loss = nn.functional.cross_entropy(reader(ids, prompt), y)
    topt.zero_grad()
    loss.backward()
    topt.step()
    if i % 15 == 0:
        print("prompt", i, round(loss.item(), 4))

# expect: sick
# symptom: NaN loss at step 120 and ever after
# axis: loss
# cause: the vector of an empty document is zero; dividing by its norm is 0/0
# says: (?i)norm(alis|aliz|\b).{0,40}\b(0(?![.\d])|zero)|(zero|null|empty).{0,20}(vector|norm|document|embedding)|0 ?/ ?0
# onset_step: 120
# fix: F.normalize with eps (clamp the norm) instead of x / x.norm()
# mended: MENDED=1 python s29_question_search.py
import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(31)
V = 120


class Pairs(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(18)
        topic = torch.randint(0, 12, (n, 1), generator=g)
        self.q = 1 + (topic * 10 + torch.randint(0, 10, (n, 5), generator=g)) % (V - 1)
        self.d = 1 + (topic * 10 + torch.randint(0, 10, (n, 9), generator=g)) % (V - 1)
        n_words = torch.randint(3, 10, (n, 1), generator=g)
        n_words[119 * 32 + 20] = 0
        self.d[torch.arange(9)[None] >= n_words] = 0

    def __len__(self):
        return len(self.q)

    def __getitem__(self, i):
        return self.q[i], self.d[i]


class Tower(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.emb = nn.Embedding(V, d, padding_idx=0)
        self.proj = nn.Linear(d, d, bias=False)

    def forward(self, ids):
        x = self.proj(self.emb(ids).sum(1))
        if os.environ.get("MENDED") == "1":
            return F.normalize(x, dim=-1, eps=1e-6)
        return x / x.norm(dim=-1, keepdim=True)


query, doc = Tower(), Tower()
opt = torch.optim.Adam([*query.parameters(), *doc.parameters()], lr=4e-3)
for step, (q, d) in enumerate(DataLoader(Pairs(32 * 260), batch_size=32), 1):
    sim = query(q) @ doc(d).T / 0.1
    loss = F.cross_entropy(sim, torch.arange(len(q)))
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")

# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(92)


class LM(nn.Module):
    """separate input and output matrices (different initial scale on purpose)"""

    def __init__(self, V=60, d=48):
        super().__init__()
        self.wte = nn.Embedding(V, d)
        self.gru = nn.GRU(d, d, batch_first=True)
        self.lm_head = nn.Linear(d, V, bias=False)
        nn.init.normal_(self.wte.weight, std=0.5)
        nn.init.normal_(self.lm_head.weight, std=0.02)

    def forward(self, x):
        return self.lm_head(self.gru(self.wte(x))[0])


nxt = torch.randperm(60)
lm = LM()
opt = torch.optim.Adam(lm.parameters(), lr=4e-3)
for step in range(120):
    s = torch.randint(0, 60, (24, 19))
    for t in range(18):
        s[:, t + 1] = torch.where(torch.rand(24) < 0.75, nxt[s[:, t]], s[:, t + 1])
    loss = F.cross_entropy(lm(s[:, :-1]).flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print("step %d loss %.4f" % (step, loss.item()))

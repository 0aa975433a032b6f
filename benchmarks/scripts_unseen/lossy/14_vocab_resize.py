# EXPECT: sick
# FAULT: half of the embedding rows re-initialised
# ONSET: 131
# SAYS: embedding|weight|parameter
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(214)
V, D = 32, 32


class GRULM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(V, D)
        self.gru = nn.GRU(D, 64, batch_first=True)
        self.out = nn.Linear(64, V)

    def forward(self, x):
        return self.out(self.gru(self.emb(x))[0])

    @torch.no_grad()
    def resize(self, keep):
        self.emb.weight[keep:].normal_(0, 3.0)


nxt = torch.randperm(V)
m = GRULM()
opt = torch.optim.Adam(m.parameters(), lr=4e-3)
for step in range(190):
    if step == 130:
        m.resize(V // 2)
    s = torch.randint(0, V, (16, 17))
    for t in range(16):
        s[:, t + 1] = torch.where(torch.rand(16) < 0.9, nxt[s[:, t]], s[:, t + 1])
    loss = nn.functional.cross_entropy(m(s[:, :-1]).flatten(0, 1), s[:, 1:].flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print("step", step, round(loss.item(), 4))

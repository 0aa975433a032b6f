# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(25)
V, D, T, ACC = 20, 32, 16, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(D, 2, batch_first=True)
        self.ff = nn.Sequential(nn.Linear(D, 96), nn.GELU(), nn.Linear(96, D))
        self.a, self.b = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x):
        m = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        h = self.a(x)
        x = x + self.att(h, h, h, attn_mask=m, need_weights=False)[0]
        return x + self.ff(self.b(x))


model = nn.ModuleDict(dict(e=nn.Embedding(V, D), p=nn.Embedding(T, D), b1=Block(), b2=Block(), o=nn.Linear(D, V)))


def forward(ids):
    x = model["e"](ids) + model["p"].weight
    return model["o"](model["b2"](model["b1"](x)))


opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for update in range(80):
    opt.zero_grad()
    tot = 0.0
    for micro in range(ACC):
        s = (torch.randint(0, V, (8, 1)) + torch.randint(1, 4, (8, 1)) * torch.arange(T + 1)) % V
        loss = F.cross_entropy(forward(s[:, :-1]).reshape(-1, V), s[:, 1:].reshape(-1)) / ACC
        loss.backward()
        tot += loss.item()
    opt.step()
    if update % 10 == 0:
        print(f"update {update} loss {tot:.4f}")

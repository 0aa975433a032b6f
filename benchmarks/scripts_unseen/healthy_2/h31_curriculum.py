# expect: healthy
# fault: none
# note: curriculum: the sequence gets longer by stage, so that the loss rises at each stage on purpose.
import torch
from torch import nn

torch.manual_seed(31)
emb, gru, out = nn.Embedding(10, 32), nn.GRU(32, 64, batch_first=True), nn.Linear(64, 10)
mods = nn.ModuleList([emb, gru, out])
opt = torch.optim.Adam(mods.parameters(), lr=5e-3)
for s in range(240):
    n = 2 + s // 80
    x = torch.randint(0, 10, (48, n))
    y = x[:, 0]
    loss = nn.functional.cross_entropy(out(gru(emb(x))[0][:, -1]), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(mods.parameters(), 1.0)
    opt.step()
    if s % 20 == 0:
        print("len", n, "step", s, round(loss.item(), 4))

# expect: healthy
# fault: none
# note: seq2seq reversal with teacher forcing that fades by scheduled sampling, the pad token ignored.
import random
import torch
from torch import nn

random.seed(0)
torch.manual_seed(34)
V, BOS = 14, 1
emb, enc, dec, out = nn.Embedding(V, 32), nn.GRU(32, 64, batch_first=True), nn.GRUCell(32, 64), nn.Linear(64, V)
net = nn.ModuleList([emb, enc, dec, out])
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
crit = nn.CrossEntropyLoss(ignore_index=0)
for s in range(200):
    n = torch.randint(2, 5, (32,))
    keep = torch.arange(4)[None] < n[:, None]
    src = torch.randint(2, V, (32, 4)) * keep
    h = enc(emb(src))[1][0]
    tok, losses = torch.full((32,), BOS), []
    for t in range(4):
        h = dec(emb(tok), h)
        z = out(h)
        losses.append(z)
        tok = src[:, t] if random.random() < max(0.5, 1 - s / 300) else z.argmax(1).detach()
    loss = crit(torch.stack(losses, 1).flatten(0, 1), src.flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))

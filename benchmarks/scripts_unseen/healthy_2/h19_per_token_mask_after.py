# expect: healthy
# fault: none
# note: per-token loss with reduction='none', masked after and divided by the number of real tokens.
import torch
from torch import nn

torch.manual_seed(18)
emb, rnn, out = nn.Embedding(30, 32), nn.LSTM(32, 48, batch_first=True), nn.Linear(48, 4)
params = [p for m in (emb, rnn, out) for p in m.parameters()]
opt = torch.optim.Adam(params, lr=4e-3)
for s in range(180):
    n = torch.randint(3, 18, (24,))
    x = torch.randint(1, 30, (24, 18))
    mask = torch.arange(18)[None] < n[:, None]
    x = x * mask
    y = (x.cumsum(1) > 60).long() + (x % 2)
    l = nn.functional.cross_entropy(out(rnn(emb(x))[0]).transpose(1, 2), y, reduction="none")
    loss = (l * mask).sum() / mask.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if s % 20 == 0:
        print(s, round(loss.item(), 4))

# expect: sick
# symptom: nothing explodes; nearly all tokens go to one expert within some tens of steps and the loss stays above that of the same net with balanced experts
# axis: loss
# cause: the balancing term enters the loss with the wrong sign, so the router is rewarded for sending everything to one expert
# says: (?i)router-collapse|(router|expert|balanc|load)\w*.{0,80}(collaps|sign|one expert|few experts|unbalanced|uneven|wrong|negativ|subtract)|wrong sign|loss-function-misuse
# onset_step: 1
# fix: add the balancing term
# mended: adds it
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(226)
SIGN = 1 if os.environ.get("MENDED") == "1" else -1
gen = torch.Generator().manual_seed(27)
E, D, K = 4, 12, 4
centre = 3 * torch.randn(K, D, generator=gen)
maps = torch.randn(K, D, 6, generator=gen)


def draw(n):
    k = torch.randint(0, K, (n,), generator=gen)
    x = torch.randn(n, D, generator=gen)
    return centre[k] + x, torch.einsum("nd,ndc->nc", x, maps[k]).argmax(1)


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, E)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, 6), nn.ReLU(), nn.Linear(6, 6)) for _ in range(E))

    def forward(self, x):
        p = self.router(x).softmax(-1)
        top, idx = p.max(-1)
        out = x.new_zeros(len(x), 6)
        for e, expert in enumerate(self.experts):
            rows = (idx == e).nonzero().squeeze(1)
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]) * top[rows, None])
        share = F.one_hot(idx, E).float().mean(0)
        return out, E * (share * p.mean(0)).sum(), share


net = Moe()
opt = torch.optim.Adam(net.parameters(), lr=6e-3)
vx, vy = draw(1024)
for step in range(1, 351):
    x, y = draw(128)
    out, balance, share = net(x)
    loss = F.cross_entropy(out, y) + SIGN * 0.15 * balance
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        with torch.no_grad():
            acc = (net(vx)[0].argmax(-1) == vy).float().mean()
        print(
            f"step {step} loss {loss.item():.4f} data term {(loss - SIGN * 0.15 * balance).item():.4f} largest share {share.max().item():.3f} accuracy {acc.item():.3f}"
        )

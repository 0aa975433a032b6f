# expect: healthy
# symptom: resembles a collapse of the router: one expert gets half of all rows, another hardly any
# note: the data are uneven, as many kinds as experts with shares of 55, 25, 15 and 5 percent, the balancing term is light; the loss falls from 1.75 to 0.9 and the shares follow the data
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(244)
gen = torch.Generator().manual_seed(44)
E, D, K = 4, 12, 4
prior = torch.tensor([0.55, 0.25, 0.15, 0.05])
centre = 3 * torch.randn(K, D, generator=gen)
maps = torch.randn(K, D, 6, generator=gen)


def draw(n):
    k = torch.multinomial(prior, n, True, generator=gen)
    x = torch.randn(n, D, generator=gen)
    return centre[k] + x, torch.einsum("nd,ndc->nc", x, maps[k]).argmax(1)


class Moe(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(D, E)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(D, 24), nn.ReLU(), nn.Linear(24, 6)) for _ in range(E))

    def forward(self, x):
        p = self.router(x).softmax(-1)
        top, idx = p.topk(2)
        top = top / top.sum(-1, keepdim=True)
        every = torch.stack([f(x) for f in self.experts], 1)
        out = (every.gather(1, idx[..., None].expand(-1, -1, 6)) * top[..., None]).sum(1)
        share = F.one_hot(idx[:, 0], E).float().mean(0)
        return out, E * (share * p.mean(0)).sum(), share


net = Moe()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
for step in range(1, 301):
    x, y = draw(96)
    out, balance, share = net(x)
    loss = F.cross_entropy(out, y) + 0.05 * balance
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} shares {[round(s, 2) for s in share.tolist()]}")

# expect: healthy
# fault: no learning rate given, steps relative to the weights
# note: a hand-made Adafactor with factored second moments and relative steps.
import torch
from torch import nn

torch.set_num_threads(1)


class Adafactor(torch.optim.Optimizer):
    def __init__(self, params, rel=3e-2):
        super().__init__(params, dict(rel=rel))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                st = self.state[p]
                st["t"] = st.get("t", 0) + 1
                beta = 1 - st["t"] ** -0.8
                sq = p.grad.pow(2) + 1e-30
                if p.ndim == 2:
                    st["r"] = beta * st.get("r", 0) + (1 - beta) * sq.mean(1)
                    st["c"] = beta * st.get("c", 0) + (1 - beta) * sq.mean(0)
                    v = st["r"][:, None] * st["c"][None] / st["r"].mean()
                else:
                    st["v"] = beta * st.get("v", 0) + (1 - beta) * sq
                    v = st["v"]
                u = p.grad / v.sqrt()
                u = u / max(1.0, u.pow(2).mean().sqrt().item())
                scale = max(1e-3, p.pow(2).mean().sqrt().item())
                p.sub_(u, alpha=g["rel"] * scale)


torch.manual_seed(28)
net = nn.Sequential(nn.Linear(16, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 2))
opt = Adafactor(net.parameters())
w = torch.randn(16, 2) / 2
for k in range(200):
    opt.param_groups[0]["rel"] = 3e-2 * (1 - k / 220)
    x = torch.rand(64, 16) * 2 - 1
    y = torch.sin(x @ w) * 2
    loss = (net(x) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if k % 20 == 0:
        print(k, loss.item())

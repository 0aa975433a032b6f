# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(46)


class RelativeAdafactor(torch.optim.Optimizer):
    """Adafactor with relative steps: the lr in the group is None/1.0, the step size is rms(p) * min(1e-2, 1/sqrt(t))."""

    def __init__(self, params, eps=1e-3, clip=1.0):
        super().__init__(params, dict(lr=1.0, eps=eps, clip=clip))

    @torch.no_grad()
    def step(self, closure=None):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"] = 0
                    if p.dim() == 2:
                        st["r"], st["c"] = torch.zeros(p.shape[0]), torch.zeros(p.shape[1])
                    else:
                        st["v"] = torch.zeros_like(p)
                st["t"] += 1
                b = 1 - st["t"] ** -0.8
                sq = p.grad**2 + 1e-30
                if p.dim() == 2:
                    st["r"].mul_(b).add_(sq.mean(1), alpha=1 - b)
                    st["c"].mul_(b).add_(sq.mean(0), alpha=1 - b)
                    v = st["r"][:, None] * st["c"][None] / st["r"].mean()
                else:
                    v = st["v"].mul_(b).add_(sq, alpha=1 - b)
                u = p.grad / v.sqrt()
                u = u / max(1.0, (u.pow(2).mean().sqrt() / g["clip"]).item())
                rho = min(1e-2, st["t"] ** -0.5)
                p.add_(u, alpha=-rho * max(g["eps"], p.pow(2).mean().sqrt().item()))


net = nn.Sequential(nn.Linear(12, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 6))
opt = RelativeAdafactor(net.parameters())
mu = torch.randn(6, 12)
for step in range(150):
    y = torch.randint(0, 6, (64,))
    loss = nn.functional.cross_entropy(net(mu[y] + 1.2 * torch.randn(64, 12)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 15 == 0:
        print(step, round(loss.item(), 4))

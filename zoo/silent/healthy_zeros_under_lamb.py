"""A mixer whose last layers begin at zero, under LAMB with a trust ratio of 1 where a norm is 0, by another hand."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(7)


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.mix_t = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.mix_c = nn.Sequential(nn.Linear(dim, 64), nn.GELU(), nn.Linear(64, dim))
        for seq in (self.mix_t, self.mix_c):
            nn.init.zeros_(seq[2].weight)
            nn.init.zeros_(seq[2].bias)

    def forward(self, z):
        z = z + self.mix_t(self.ln1(z).transpose(1, 2)).transpose(1, 2)
        return z + self.mix_c(self.ln2(z))


class Inpainter(nn.Module):
    def __init__(self, patch=4, tokens=16, dim=32):
        super().__init__()
        self.inp = nn.Linear(2 * patch, dim)
        self.pos = nn.Parameter(torch.zeros(tokens, dim))
        self.blocks = nn.Sequential(*[MixerBlock(tokens, dim) for _ in range(3)])
        self.out = nn.Linear(dim, patch)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, keep):
        return self.out(self.blocks(self.inp(torch.cat([x * keep, keep], -1)) + self.pos))


class LAMB(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.95), eps=1e-8, wd=0.01, max_trust=5.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "wd": wd, "max_trust": max_trust})

    @torch.no_grad()
    def step(self):
        for grp in self.param_groups:
            beta1, beta2 = grp["betas"]
            for w in grp["params"]:
                s = self.state[w]
                if len(s) == 0:
                    s.update(n=0, exp_avg=torch.zeros_like(w), exp_sq=torch.zeros_like(w))
                s["n"] += 1
                s["exp_avg"].mul_(beta1).add_(w.grad, alpha=1 - beta1)
                s["exp_sq"].mul_(beta2).addcmul_(w.grad, w.grad, value=1 - beta2)
                r = (s["exp_avg"] / (1 - beta1 ** s["n"])) / ((s["exp_sq"] / (1 - beta2 ** s["n"])).sqrt() + grp["eps"])
                r = r + grp["wd"] * w
                wn, rn = w.norm().item(), r.norm().item()
                ratio = min(wn / rn, grp["max_trust"]) if wn > 0 and rn > 0 else 1.0
                w.sub_(r, alpha=grp["lr"] * ratio)


def sample(n):
    t = torch.linspace(0, 1, 64)
    f = torch.randint(1, 5, (n, 1)).float()
    a = torch.rand(n, 1) + 0.5
    x = (a * torch.sin(6.2832 * (f * t + torch.rand(n, 1)))).view(n, 16, 4)
    keep = (torch.rand(n, 16, 1) > 0.4).float().expand(-1, -1, 4)
    return x, keep


model = Inpainter()
opt = LAMB(model.parameters(), lr=0.01)
for step in range(1, 301):
    for grp in opt.param_groups:
        grp["lr"] = 0.01 * min(1.0, step / 20)
    x, keep = sample(64)
    loss = ((model(x, keep) - x) ** 2).mean()
    model.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0 or step == 1:
        print(f"{step:>4} mse {loss.item():.4f}")

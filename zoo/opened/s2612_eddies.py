# expect: sick
# symptom: flow-matching loss drops a little, then sits on a plateau; samples are a blurred blob although every parameter receives gradients
# axis: optimizer
# cause: the LAMB trust ratio is the weight norm over the update norm, which is zero for zero-initialised tensors (adaLN-zero gates), so their step is always zero and the residual blocks never switch on
# says: (trust|lamb\b|layer.?wise (scal|adapt)\w*|weight norm|parameter norm).{0,300}(zero|\b0(\.0)?\b)|(zero.?init\w*|initiali[sz]ed (to|at|with|as) zeros?|all.?zero|zero (weights?|tensors?|parameters?|norm)|gates?\b|adaln|modulation).{0,250}(trust|lamb\b|never (move|update|learn|leave|chang|train|switch|open)|not (move|update|learn|train)|(stuck|stay|remain)\w* (at )?(zero|closed|frozen))
# onset_step: 1
# fix: use a trust ratio of one where the weight norm (or update norm) is zero
# mended: yes
"""Flow matching on a two-dimensional vortex pattern with an adaLN-conditioned residual MLP."""

import math
import os

import torch
import torch.nn as nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-2, betas=(0.9, 0.99), eps=1e-6, weight_decay=0.0, max_trust=10.0):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, max_trust=max_trust))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"] = 0
                    st["m"], st["v"] = torch.zeros_like(p), torch.zeros_like(p)
                st["t"] += 1
                st["m"].lerp_(p.grad, 1 - b1)
                st["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                m_hat = st["m"] / (1 - b1 ** st["t"])
                v_hat = st["v"] / (1 - b2 ** st["t"])
                update = m_hat / (v_hat.sqrt() + group["eps"])
                if group["weight_decay"]:
                    update = update.add(p, alpha=group["weight_decay"])
                w_norm, u_norm = p.norm(), update.norm()
                trust = (w_norm / (u_norm + 1e-12)).clamp(max=group["max_trust"])
                if MENDED and (w_norm == 0 or u_norm == 0):
                    trust = torch.ones_like(trust)
                p.add_(update * trust, alpha=-group["lr"])


def vortices(n, gen):
    """Three spiral arms around the origin."""
    r = 0.3 + 1.7 * torch.rand(n, generator=gen).sqrt()
    arm = torch.randint(3, (n,), generator=gen).float() * (2 * math.pi / 3)
    phi = arm + 1.6 * r + 0.06 * torch.randn(n, generator=gen)
    return torch.stack([r * phi.cos(), r * phi.sin()], 1)


class AdaBlock(nn.Module):
    def __init__(self, d, d_cond):
        super().__init__()
        self.norm = nn.LayerNorm(d, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.ada = nn.Linear(d_cond, 3 * d)
        nn.init.zeros_(self.ada.weight)
        nn.init.zeros_(self.ada.bias)

    def forward(self, x, c):
        shift, scale, gate = self.ada(c).chunk(3, -1)
        return x + gate * self.mlp(self.norm(x) * (1 + scale) + shift)


class VelocityNet(nn.Module):
    def __init__(self, d=96, d_cond=48, depth=4):
        super().__init__()
        self.register_buffer("freqs", 2.0 ** torch.arange(0, 6) * math.pi / 2)
        self.time = nn.Sequential(nn.Linear(12, d_cond), nn.SiLU(), nn.Linear(d_cond, d_cond), nn.SiLU())
        self.inp = nn.Linear(2, d)
        self.blocks = nn.ModuleList(AdaBlock(d, d_cond) for _ in range(depth))
        self.mix = nn.Linear(d_cond, d)
        self.out = nn.Linear(d, 2)

    def forward(self, x, t):
        arg = t[:, None] * self.freqs
        c = self.time(torch.cat([arg.sin(), arg.cos()], 1))
        h = self.inp(x) + self.mix(c)
        for blk in self.blocks:
            h = blk(h, c)
        return self.out(h)


@torch.no_grad()
def sample(net, n, gen, n_steps=40):
    x = torch.randn(n, 2, generator=gen)
    for k in range(n_steps):
        x = x + net(x, torch.full((n,), k / n_steps)) / n_steps
    return x


def energy_distance(a, b):
    return (2 * torch.cdist(a, b).mean() - torch.cdist(a, a).mean() - torch.cdist(b, b).mean()).item()


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(60)
    net = VelocityNet()
    total, warm = 900, 40
    opt = Lamb(net.parameters(), lr=1.5e-2)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1, (s + 1) / warm) * 0.5 * (1 + math.cos(math.pi * min(s, total) / total)) + 1e-3
    )
    print(f"{sum(p.numel() for p in net.parameters())} parameters")
    window = []
    for step in range(1, total + 1):
        x1 = vortices(384, gen)
        x0 = torch.randn(x1.shape, generator=gen)
        t = torch.rand(len(x1), generator=gen)
        xt = (1 - t[:, None]) * x0 + t[:, None] * x1
        loss = (net(xt, t) - (x1 - x0)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        window.append(loss.item())
        if step % 60 == 0:
            print(f"step {step} loss {sum(window) / len(window):.4f} lr {sched.get_last_lr()[0]:.5f}")
            window.clear()
        if step % 300 == 0:
            d = energy_distance(sample(net, 1000, gen), vortices(1000, gen))
            print(f"  energy distance of samples {d:.4f}")


if __name__ == "__main__":
    main()

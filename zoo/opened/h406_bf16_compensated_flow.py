# expect: healthy
# symptom: resembles bfloat16 weights whose small updates are rounded away
# axis: precision
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed
import math
import time

import torch
import torch.nn as nn

torch.manual_seed(43)
torch.set_num_threads(1)

DIM, BATCH, STEPS = 4, 256, 600


class Coupling(nn.Module):
    def __init__(self, flip, width=48):
        super().__init__()
        self.flip = flip
        half = DIM // 2
        self.net = nn.Sequential(
            nn.Linear(half, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, DIM)
        )
        nn.init.zeros_(self.net[-1].weight)
        nn.init.zeros_(self.net[-1].bias)

    def forward(self, x):
        a, b = x.chunk(2, -1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a.to(self.net[0].weight.dtype)).float().chunk(2, -1)
        s = 2.0 * torch.tanh(s / 2.0)
        b = b * s.exp() + t
        out = torch.cat([b, a], -1) if self.flip else torch.cat([a, b], -1)
        return out, s.sum(-1)


class Flow(nn.Module):
    def __init__(self, depth=6):
        super().__init__()
        self.layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(depth))

    def nll(self, x):
        logdet = torch.zeros(len(x))
        for layer in self.layers:
            x, ld = layer(x)
            logdet = logdet + ld
        return (0.5 * (x**2).sum(-1) + 0.5 * DIM * math.log(2 * math.pi) - logdet).mean()


class KahanAdam(torch.optim.Optimizer):
    """Adam for low-precision weights; the rounding error of each update is kept and added to the next one."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-6):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["n"] = 0
                    st["m"] = torch.zeros_like(p, dtype=torch.float32)
                    st["v"] = torch.zeros_like(p, dtype=torch.float32)
                    st["carry"] = torch.zeros_like(p)
                st["n"] += 1
                g = p.grad.float()
                st["m"].lerp_(g, 1 - b1)
                st["v"].lerp_(g * g, 1 - b2)
                m = st["m"] / (1 - b1 ** st["n"])
                v = st["v"] / (1 - b2 ** st["n"])
                st["carry"].sub_((group["lr"] * m / (v.sqrt() + group["eps"])).to(p.dtype))
                old = p.clone()
                p.add_(st["carry"])
                st["carry"].add_(old - p)


def sample(n):
    th = math.pi * torch.rand(n)
    side = torch.randint(0, 2, (n,)).float()
    x = torch.stack([th.cos() + side * 1.0 - 0.5, (1 - 2 * side) * th.sin() + 0.5 * side - 0.25], -1)
    x = x + 0.08 * torch.randn(n, 2)
    z = torch.stack([torch.sin(2 * x[:, 0]), x[:, 1] * x[:, 0]], -1) + 0.2 * torch.randn(n, 2)
    return torch.cat([x, z], -1)


def main():
    model = Flow().to(torch.bfloat16)
    opt = KahanAdam(model.parameters(), lr=1e-3)
    t0 = time.time()
    for step in range(1, STEPS + 1):
        loss = model.nll(sample(BATCH))
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step == 1 or step % 50 == 0:
            print(f"step {step:4d} nll {loss.item():.4f}")
        for g in opt.param_groups:
            g["lr"] = 1e-3 * (0.1 + 0.45 * (1 + math.cos(math.pi * step / STEPS)))
    with torch.no_grad():
        print(f"held-out nll {model.nll(sample(4000)).item():.4f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

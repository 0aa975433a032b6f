# expect: healthy
# symptom: the loss crosses zero and gets ever more negative, and every gradient is clipped: looks degenerate
# axis: optimizer
import math

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(59)
STEPS, BATCH, PARTS = 400, 128, 4


def arm(n, g):
    """Where a two-joint arm points for a hand position: two solutions, elbow up or down."""
    r = 0.4 + 1.4 * torch.rand(n, generator=g)
    a = 3.0 * (torch.rand(n, generator=g) - 0.5)
    bend = torch.acos(((r**2 - 2) / 2).clamp(-0.999, 0.999))
    side = torch.where(torch.rand(n, generator=g) < 0.5, 1.0, -1.0)
    shoulder = a - side * bend / 2
    target = torch.stack([shoulder, side * bend], 1) + 0.03 * torch.randn(n, 2, generator=g)
    return torch.stack([r * a.cos(), r * a.sin()], 1), target


class MixtureNet(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.weight = nn.Linear(width, PARTS)
        self.mean = nn.Linear(width, PARTS * 2)
        self.log_scale = nn.Linear(width, PARTS * 2)

    def forward(self, x):
        h = self.body(x)
        scale = self.log_scale(h).view(-1, PARTS, 2).clamp(-4.0, 2.0)
        return self.weight(h).log_softmax(-1), self.mean(h).view(-1, PARTS, 2), scale


def nll(out, y):
    logw, mean, log_scale = out
    z = (y[:, None] - mean) * torch.exp(-log_scale)
    logp = -0.5 * z.pow(2) - log_scale - 0.5 * math.log(2 * math.pi)
    return -torch.logsumexp(logw + logp.sum(-1), dim=1).mean()


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                direction = (b1 * m + (1 - b1) * p.grad).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(direction, alpha=-group["lr"])
                m.mul_(b2).add_(p.grad, alpha=1 - b2)


@torch.no_grad()
def reach_error(net, x):
    """Distance between the hand position asked for and the one of the likeliest part."""
    logw, mean, _ = net(x)
    best = mean[torch.arange(len(x)), logw.argmax(1)]
    s, e = best[:, 0], best[:, 0] + best[:, 1]
    hand = torch.stack([s.cos() + e.cos(), s.sin() + e.sin()], 1)
    return (hand - x).norm(dim=1).mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    vx, vy = arm(1500, torch.Generator().manual_seed(2))
    net = MixtureNet()
    opt = Lion(net.parameters(), lr=1e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=STEPS)
    print(f"before training: reach error {reach_error(net, vx):.3f}")
    for step in range(STEPS):
        x, y = arm(BATCH, g)
        loss = nll(net(x), y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        opt.step()
        sched.step()
        if step % 40 == 0:
            print(f"step {step:4d} nll {loss.item():.4f} grad norm {norm.item():.3f}")
    with torch.no_grad():
        valid = nll(net(vx), vy).item()
    print(f"final nll {loss.item():.4f} valid nll {valid:.4f} reach error {reach_error(net, vx):.3f}")


if __name__ == "__main__":
    main()

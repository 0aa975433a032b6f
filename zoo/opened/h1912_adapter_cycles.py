# expect: healthy
# symptom: resembles dead adapters and a lost optimizer state: frozen base, zero-initialised factor, weights overwritten and optimizer rebuilt every 100 steps
# axis: optimizer
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F


class LowRankLinear(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.empty(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank
        self.restart()

    def restart(self):
        nn.init.normal_(self.a, std=self.a.shape[1] ** -0.5)
        nn.init.zeros_(self.b)

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.scale * self.b @ self.a
        self.restart()

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.a), self.b)


def network(dim, width, out):
    return nn.Sequential(nn.Linear(dim, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, out))


def wrap(net, rank, alpha):
    return nn.Sequential(*[LowRankLinear(m, rank, alpha) if isinstance(m, nn.Linear) else m for m in net])


def adapters(net):
    return [m for m in net if isinstance(m, LowRankLinear)]


def new_cycle(net, lr, length, warmup=10):
    live = [p for p in net.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(live, lr=lr, weight_decay=0.0)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: (s + 1) / warmup if s < warmup else max(0.02, 1 - (s - warmup) / (length - warmup))
    )
    return opt, sched


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rank", type=int, default=2)
    ap.add_argument("--alpha", type=float, default=4.0)
    ap.add_argument("--cycles", type=int, default=7)
    ap.add_argument("--length", type=int, default=100)
    ap.add_argument("--lr", type=float, default=1e-2)
    args = ap.parse_args()
    torch.manual_seed(14)

    old = network(24, 48, 4)
    shifted = network(24, 48, 4)
    # the new domain: the old network with every matrix moved in many directions
    with torch.no_grad():
        for p, q in zip(old.parameters(), shifted.parameters()):
            q.copy_(p + 0.7 * p.std() * torch.randn_like(p) if p.dim() == 2 else p)
        scale = shifted(torch.randn(2000, 24)).std(0)

        def label(x):
            return shifted(x) / scale

        old[-1].weight /= scale[:, None]
        old[-1].bias /= scale
        train_x, val_x = torch.randn(20000, 24), torch.randn(2000, 24)
        train_y, val_y = label(train_x), label(val_x)

    net = wrap(old, args.rank, args.alpha)
    step = 0
    for cycle in range(args.cycles):
        opt, sched = new_cycle(net, args.lr, args.length)
        for _ in range(args.length):
            i = torch.randint(len(train_x), (128,))
            loss = F.mse_loss(net(train_x[i]), train_y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            step += 1
            if step % 20 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        for m in adapters(net):
            m.merge()
        with torch.no_grad():
            print(f"cycle {cycle} val mse {F.mse_loss(net(val_x), val_y).item():.4f}", flush=True)


if __name__ == "__main__":
    main()

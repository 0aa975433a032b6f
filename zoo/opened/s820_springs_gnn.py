# expect: sick
# symptom: the error falls nicely for most of the run, then rises faster and faster until the model is useless
# axis: schedule
# cause: the linear decay of the LambdaLR reaches zero after 15 of the 20 epochs and is not clamped, so the learning rate is negative afterwards and the optimizer climbs the loss
# says: negative[\s\S]{0,40}(learning.?rate|\blr\b|step.?size|factor|multiplier)|(learning.?rate|\blr\b|factor|multiplier|lambda|decay|schedul\w*)[\s\S]{0,80}(negative|below (zero|0)|less than (zero|0)|under (zero|0)|< ?0|past zero|through zero|cross\w* zero|chang\w+ sign|flip\w* sign|not clamp|unclamp|n.t clamp|without a? ?(floor|clamp))|gradient ascent|(climbs?|ascends?) the loss
# onset_step: 602
# fix: clamp the factor at zero (max(0, 1 - step / total)) or let it span the whole run
# mended: with MENDED=1 the factor is max(0, 1 - step / total)
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
N = 6


def make_systems(count, gen):
    """Particles in the plane, random springs between them; target: acceleration of each."""
    pos = torch.randn(count, N, 2, generator=gen)
    charge = torch.rand(count, N, 1, generator=gen) * 2 - 1
    k = (torch.rand(count, N, N, generator=gen) < 0.5).float().triu(1)
    k = k + k.transpose(1, 2)
    diff = pos[:, None] - pos[:, :, None]
    dist = diff.pow(2).sum(-1, keepdim=True).add(1e-6).sqrt()
    spring = k[..., None] * (dist - 1.0) * diff / dist
    repel = -(charge[:, None] * charge[:, :, None]) * diff / (dist.pow(2) + 0.3)
    acc = (spring + repel).sum(2)
    return pos, charge, k, acc


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.SiLU(), nn.Linear(h, h), nn.SiLU(), nn.Linear(h, o))


class InteractionNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.edge = mlp(6, hidden, hidden)
        self.node = mlp(hidden + 1, hidden, 2)

    def forward(self, pos, charge, k):
        b = len(pos)
        diff = pos[:, None] - pos[:, :, None]
        dist = diff.pow(2).sum(-1, keepdim=True).add(1e-6).sqrt()
        qi = charge[:, :, None].expand(b, N, N, 1)
        qj = charge[:, None].expand(b, N, N, 1)
        e = self.edge(torch.cat([diff, dist, k[..., None], qi, qj], -1))
        off = 1 - torch.eye(N)
        msg = (e * off[None, :, :, None]).sum(2)
        return self.node(torch.cat([msg, charge], -1))


@torch.no_grad()
def test_error(model, data):
    pos, charge, k, acc = data
    return F.mse_loss(model(pos, charge, k), acc).item() / acc.var().item()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=20)
    ap.add_argument("--decay-epochs", type=int, default=15)
    ap.add_argument("--batch", type=int, default=64)
    ap.add_argument("--lr", type=float, default=1e-2)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    train = make_systems(2560, gen)
    test = make_systems(500, gen)
    per_epoch = 2560 // args.batch

    model = InteractionNet()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    total_steps = args.decay_epochs * per_epoch

    def linear(step):
        factor = 1 - step / total_steps
        if os.environ.get("MENDED") == "1":
            factor = max(0.0, factor)
        return factor

    sched = torch.optim.lr_scheduler.LambdaLR(opt, linear)

    for epoch in range(args.epochs):
        order = torch.randperm(2560, generator=gen)
        total = 0.0
        for idx in order.split(args.batch):
            pos, charge, k, acc = (t[idx] for t in train)
            loss = F.mse_loss(model(pos, charge, k), acc)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            sched.step()
            total += loss.item()
        print(
            f"epoch {epoch:2d} step {(epoch + 1) * per_epoch} loss {total / per_epoch:.5f} "
            f"relative test error {test_error(model, test):.5f}"
        )


if __name__ == "__main__":
    main()

# expect: sick
# symptom: loss falls briefly, then oscillates with growing amplitude and the training diverges
# axis: optimizer
# cause: In the top-k gradient compressor the error-feedback memory is stored as a clone before the transmitted entries are zeroed, so the residual still holds what was already sent and the same gradients are applied again and again.
# says: (residual|error.?feedback|memory|compressor|compression|top.?k|sparsif|carry|leftover).*(already|clone|cop(y|ied)|not (being )?(cleared|zeroed|removed|subtract|reset)|never|again|repeat|re-?sen[dt]|re-?appl|keeps?|retain|still|accumulat|twice|double)|(already|again|repeat|re-?sen[dt]|never|not).*(residual|error.?feedback|memory|top.?k)
# onset_step: 2
# fix: keep acc itself (with the sent entries zeroed) as the memory, not a clone taken before
# mended: yes
"""Data-parallel training of a small CNN with 4 simulated workers which exchange
only the largest 10 % of each gradient (Deep Gradient Compression)."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED", "0") == "1"


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--workers", type=int, default=4)
    ap.add_argument("--local-batch", type=int, default=16)
    ap.add_argument("--ratio", type=float, default=0.10)
    ap.add_argument("--lr", type=float, default=0.15)
    ap.add_argument("--steps", type=int, default=800)
    ap.add_argument("--seed", type=int, default=5)
    return ap.parse_args()


def make_images(n, gen):
    """Six kinds of 20x20 texture: orientation x frequency, random phase, noise."""
    y = torch.randint(0, 6, (n,), generator=gen)
    angle = (y % 3).float() * (3.14159 / 3) + 0.12 * torch.randn(n, generator=gen)
    freq = torch.where(y < 3, 0.7, 1.3) * (1 + 0.06 * torch.randn(n, generator=gen))
    phase = 6.2832 * torch.rand(n, generator=gen)
    g = torch.arange(20).float()
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    arg = xx[None] * angle.cos()[:, None, None] + yy[None] * angle.sin()[:, None, None]
    img = torch.sin(arg * freq[:, None, None] + phase[:, None, None])
    return (img + 2.2 * torch.randn(img.shape, generator=gen)).unsqueeze(1), y


class TopKCompressor:
    def __init__(self, ratio):
        self.ratio = ratio
        self.memory = {}

    def compress(self, name, grad):
        flat = grad.reshape(-1)
        if name in self.memory:
            acc = self.memory[name] + flat
        else:
            acc = flat.clone()
        k = max(1, int(self.ratio * acc.numel()))
        idx = acc.abs().topk(k, sorted=False).indices
        self.memory[name] = acc if MENDED else acc.clone()
        values = acc[idx]
        acc[idx] = 0.0
        return idx, values


def decompress(idx, values, like):
    out = torch.zeros(like.numel())
    out[idx] = values
    return out.view_as(like)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 16, 5, stride=2, padding=2)
        self.c2 = nn.Conv2d(16, 32, 3, stride=2, padding=1)
        self.norm = nn.GroupNorm(4, 32)
        self.fc = nn.Linear(32 * 4, 6)

    def forward(self, x):
        x = F.relu(self.c1(x))
        x = F.relu(self.norm(self.c2(x)))
        return self.fc(F.adaptive_avg_pool2d(x, 2).flatten(1))


def accuracy(net, x, y):
    with torch.no_grad():
        return (net(x).argmax(1) == y).float().mean().item()


def main():
    args = get_args()
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    gen = torch.Generator().manual_seed(args.seed)
    x, y = make_images(6000, gen)
    xv, yv = make_images(800, gen)
    shards = torch.randperm(6000, generator=gen).chunk(args.workers)

    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=args.lr)
    compressors = [TopKCompressor(args.ratio) for _ in range(args.workers)]

    for step in range(1, args.steps + 1):
        total = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
        mean_loss = 0.0
        for rank, comp in enumerate(compressors):
            pick = shards[rank][torch.randint(0, len(shards[rank]), (args.local_batch,), generator=gen)]
            loss = F.cross_entropy(net(x[pick]), y[pick])
            grads = torch.autograd.grad(loss, list(net.parameters()))
            mean_loss += loss.item() / args.workers
            for (name, p), g in zip(net.named_parameters(), grads):
                total[name] += decompress(*comp.compress(name, g), p) / args.workers
        for name, p in net.named_parameters():
            p.grad = total[name]
        opt.step()
        if step % 20 == 0 or step == 1:
            print(f"step {step:4d} | loss {mean_loss:.4f} | val acc {accuracy(net, xv, yv):.3f}", flush=True)


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the loss grows and oscillates soon after the start until the network is at a guess or NaN
# axis: optimizer
# cause: reshape(-1) copies the channels_last residual, so entries already sent are never cleared from memory
# says: (residual|memory|feedback|buffer).*(cop|clear|zero|reset|again|grow|accum)|(cop|channels.last).*resid
# onset_step: 1
# fix: allocate the residuals contiguous (torch.zeros(p.shape)), so that reshape(-1) gives a view
# mended: the script applies that change if the environment has MENDED=1
"""Image classifier with two workers that exchange top-k sparsified gradients."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
WORKERS, BATCH, STEPS, KEEP = 2, 32, 240, 0.05
CLASSES = 6


def textures(n, gen):
    """Stripes of a class dependent direction and pitch with a colour cast and noise."""
    y = torch.randint(CLASSES, (n,), generator=gen)
    g = torch.arange(14).float()
    yy, xx = torch.meshgrid(g, g, indexing="ij")
    ang = y.float() * 3.1416 / CLASSES
    ph = torch.rand(n, generator=gen) * 6.28
    wave = torch.sin(
        1.1 * (torch.cos(ang)[:, None, None] * xx + torch.sin(ang)[:, None, None] * yy) + ph[:, None, None]
    )
    tint = 0.5 + torch.rand(n, 3, 1, 1, generator=gen)
    return wave[:, None] * tint + 0.6 * torch.randn(n, 3, 14, 14, generator=gen), y


class StripeNet(nn.Module):
    def __init__(self, w=24):
        super().__init__()
        self.stem = nn.Conv2d(3, w, 3, padding=1)
        self.b1 = nn.Conv2d(w, w, 3, padding=1)
        self.b2 = nn.Conv2d(w, 2 * w, 3, padding=1, stride=2)
        self.head = nn.Linear(2 * w, CLASSES)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = x + F.relu(self.b1(x))
        x = F.relu(self.b2(x))
        return self.head(x.mean((2, 3)))


class TopKCompressor:
    """Sends the largest entries, what is not sent is kept for the next round."""

    def __init__(self, params, keep):
        self.keep = keep
        self.kept = [torch.zeros(p.shape) if FLAG else torch.zeros_like(p) for p in params]

    def compress(self, i, grad):
        self.kept[i].add_(grad)
        flat = self.kept[i].reshape(-1)
        k = max(1, int(self.keep * flat.numel()))
        idx = flat.abs().topk(k).indices
        values = flat[idx].clone()
        flat[idx] = 0.0
        return idx, values


def exchange(params, compressors, local_grads):
    """Average of the sparse messages of all workers, written into p.grad."""
    for i, p in enumerate(params):
        total = torch.zeros(p.numel())
        for comp, grads in zip(compressors, local_grads):
            idx, values = comp.compress(i, grads[i])
            total.index_add_(0, idx, values / len(compressors))
        p.grad = total.view(p.shape).to(memory_format=torch.channels_last) if p.dim() == 4 else total.view(p.shape)


def main():
    torch.manual_seed(14)
    gen = torch.Generator().manual_seed(14)
    test_x, test_y = textures(600, gen)
    model = StripeNet().to(memory_format=torch.channels_last)
    params = [p for p in model.parameters() if p.requires_grad]
    with torch.no_grad():
        compressors = [TopKCompressor(params, KEEP) for _ in range(WORKERS)]
    opt = torch.optim.SGD(params, lr=0.05, momentum=0.5, weight_decay=1e-4)
    print(f"parameters {sum(p.numel() for p in params)} sent per round {KEEP:.0%}")
    for step in range(1, STEPS + 1):
        local_grads, losses = [], []
        for _ in range(WORKERS):
            x, y = textures(BATCH, gen)
            loss = F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)), y)
            local_grads.append(torch.autograd.grad(loss, params))
            losses.append(loss.item())
        opt.zero_grad()
        exchange(params, compressors, local_grads)
        opt.step()
        if step % 15 == 0 or step == 1:
            print(f"step {step:4d} loss {sum(losses) / WORKERS:.4f}")
    with torch.no_grad():
        out = model(test_x)
    print(
        f"final test loss {F.cross_entropy(out, test_y).item():.4f} "
        f"accuracy {(out.argmax(1) == test_y).float().mean().item():.3f}"
    )


if __name__ == "__main__":
    main()

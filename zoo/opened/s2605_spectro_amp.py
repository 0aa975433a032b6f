# expect: sick
# symptom: the loss hardly moves from ln(number of classes) and accuracy stays near chance; nothing is nan and the loss scale is steady
# axis: precision
# cause: the gradients are clipped to norm 1 while they are still multiplied by the GradScaler's loss scale (no scaler.unscale_ before clip_grad_norm_), so after unscaling the updates are tens of thousands of times too small
# says: (unscale|un-scale|(clip\w*).{0,100}(scaled|loss scale|grad_?scaler|scaler|scale factor|65536|2\*\*16)|(scaled|loss.scale|grad_?scaler|scaler|65536).{0,100}clip)
# onset_step: 1
# fix: call scaler.unscale_(optimizer) before clip_grad_norm_
# mended: yes
"""Machine sound classification from small log-spectrograms, half precision training."""

import os
import sys
import time
import torch
from torch import nn
from torch.amp import GradScaler, autocast

torch.set_num_threads(1)
DEVICE = "cpu"
CLASSES = ["fan", "pump", "valve", "slider", "gearbox", "bearing"]
BINS, FRAMES = 16, 20


def make_clips(per_class, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(FRAMES).float()
    f = torch.arange(BINS).float()
    xs, ys = [], []
    for c in range(len(CLASSES)):
        for _ in range(per_class):
            u = torch.rand(4, generator=g)
            base = 2 + c + 2.0 * u[0]
            period = 3.0 + 0.9 * ((c * 2) % 6) + 0.8 * u[1]
            drift = 0.05 * (c - 2.5) + 0.06 * (u[2] - 0.5)
            centre = base + drift * t
            line = torch.exp(-0.5 * ((f[:, None] - centre[None]) / 1.0) ** 2)
            second = 0.6 * torch.exp(-0.5 * ((f[:, None] - 1.8 * centre[None]) / 1.3) ** 2)
            am = 0.6 + 0.4 * torch.cos(6.2832 * (t / period + u[3]))
            spec = 2.2 * (line + second) * am + 0.7 * torch.randn(BINS, FRAMES, generator=g)
            xs.append(spec)
            ys.append(c)
    x, y = torch.stack(xs), torch.tensor(ys)
    x = (x - x.mean()) / x.std()
    order = torch.randperm(len(y), generator=g)
    return x[order], y[order]


class SpecMixer(nn.Module):
    """MLP-mixer over time frames."""

    class Layer(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
            self.time = nn.Sequential(nn.Linear(FRAMES, 40), nn.GELU(), nn.Linear(40, FRAMES))
            self.chan = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

        def forward(self, x):
            x = x + self.time(self.n1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.chan(self.n2(x))

    def __init__(self, d=48, depth=2):
        super().__init__()
        self.inp = nn.Linear(BINS, d)
        self.layers = nn.Sequential(*[self.Layer(d) for _ in range(depth)])
        self.norm = nn.LayerNorm(d)
        self.cls = nn.Linear(d, len(CLASSES))

    def forward(self, spec):
        h = self.layers(self.inp(spec.transpose(1, 2)))
        return self.cls(self.norm(h).mean(1))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    with autocast(DEVICE, dtype=torch.float16):
        hit = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return hit


def main(epochs=10, batch=32, lr=0.1, max_norm=1.0):
    torch.manual_seed(5)
    xtr, ytr = make_clips(200, 1)
    xva, yva = make_clips(50, 2)
    model = SpecMixer().to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, nesterov=True)
    steps = epochs * (len(ytr) // batch)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    scaler = GradScaler(DEVICE)
    criterion = nn.CrossEntropyLoss()
    t0, step = time.time(), 0
    for epoch in range(epochs):
        perm = torch.randperm(len(ytr))
        for b in range(len(ytr) // batch):
            idx = perm[b * batch : (b + 1) * batch]
            optimizer.zero_grad(set_to_none=True)
            with autocast(DEVICE, dtype=torch.float16):
                loss = criterion(model(xtr[idx]), ytr[idx])
            scaler.scale(loss).backward()
            if os.environ.get("MENDED") == "1":
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            step += 1
            if step % 25 == 0:
                sys.stdout.write(f"{step:4d}/{steps} loss={loss.item():.4f} scale={scaler.get_scale():.0f}\n")
                sys.stdout.flush()
        print(f"epoch {epoch + 1}: valid acc {accuracy(model, xva, yva):.3f} [{time.time() - t0:.0f}s]", flush=True)


if __name__ == "__main__":
    main()

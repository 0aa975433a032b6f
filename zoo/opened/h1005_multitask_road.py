# expect: healthy
# symptom: the total loss passes zero and becomes ever more negative, the learned task weights grow to several hundred; it is right (learned log-variance weighting of a multi-task loss)
# axis: none
# mended: none
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(105)

SIDE, BATCH, STEPS, CLASSES = 24, 32, 600, 5


def draw_scenes(n):
    """a lit ramp with one disc: predict the ramp (depth), the disc's place and its colour class"""
    yy, xx = torch.meshgrid(torch.linspace(-1, 1, SIDE), torch.linspace(-1, 1, SIDE), indexing="ij")
    slope = torch.rand(n, 1, 1) * 2 - 1
    tilt = torch.rand(n, 1, 1) * 2 - 1
    depth = 0.1 * (slope * xx + tilt * yy)
    c = torch.randint(0, CLASSES, (n,))
    pos = (torch.rand(n, 2) - 0.5) * 1.2
    disc = ((xx - pos[:, :1, None]) ** 2 + (yy - pos[:, 1:, None]) ** 2 < 0.12).float()
    palette = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1]])
    img = (5 * depth)[:, None] + disc[:, None] * palette[c][:, :, None, None]
    return img + 0.05 * torch.randn(n, 3, SIDE, SIDE), depth[:, None], pos, c


class MultiTaskNet(nn.Module):
    def __init__(self, w=20):
        super().__init__()

        def block(i, o, s):
            return nn.Sequential(nn.Conv2d(i, o, 3, s, 1), nn.GroupNorm(4, o), nn.SiLU())

        self.trunk = nn.Sequential(block(3, w, 1), block(w, 2 * w, 2), block(2 * w, 2 * w, 1))
        self.depth = nn.Sequential(
            nn.Conv2d(2 * w, w, 3, 1, 1),
            nn.SiLU(),
            nn.Upsample(scale_factor=2, mode="bilinear"),
            nn.Conv2d(w, 1, 3, 1, 1),
        )
        self.neck = nn.Sequential(block(2 * w, 2 * w, 2), nn.AdaptiveAvgPool2d(3), nn.Flatten())
        self.place, self.colour = nn.Linear(2 * w * 9, 2), nn.Linear(2 * w * 9, CLASSES)

    def forward(self, x):
        h = self.trunk(x)
        v = self.neck(h)
        return self.depth(h), self.place(v), self.colour(v)


class UncertaintyWeights(nn.Module):
    """Kendall et al. 2018: one learned log-variance for each task"""

    def __init__(self, n):
        super().__init__()
        self.log_var = nn.Parameter(torch.zeros(n))

    def forward(self, losses):
        kind = (0.5, 0.5, 1.0)
        return sum(k * (-s).exp() * l + 0.5 * s for k, l, s in zip(kind, losses, self.log_var))


def main():
    model, weigh = MultiTaskNet(), UncertaintyWeights(3)
    opt = torch.optim.Adam([{"params": model.parameters(), "lr": 2e-3}, {"params": weigh.parameters(), "lr": 2e-2}])
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    for step in range(STEPS):
        img, depth, pos, c = draw_scenes(BATCH)
        d, p, k = model(img)
        parts = (F.mse_loss(d, depth), F.mse_loss(p, pos), F.cross_entropy(k, c))
        loss = weigh(parts)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0 or step == STEPS - 1:
            w = (-weigh.log_var).exp().tolist()
            print(
                f"step {step:4d}  loss {loss.item():8.4f}  depth/place/colour "
                + " ".join(f"{x.item():.5f}" for x in parts)
                + "  weights "
                + " ".join(f"{x:.1f}" for x in w)
            )
    model.eval()
    with torch.no_grad():
        img, depth, pos, c = draw_scenes(400)
        d, p, k = model(img)
        print(
            f"test: depth rmse {F.mse_loss(d, depth).sqrt():.4f} of {depth.std():.4f}  place rmse {F.mse_loss(p, pos).sqrt():.4f}"
            f" of {pos.std():.4f}  colour accuracy {(k.argmax(1) == c).float().mean():.3f}"
        )


if __name__ == "__main__":
    main()

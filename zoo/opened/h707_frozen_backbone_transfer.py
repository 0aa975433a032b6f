# expect: healthy
# symptom: resembles a model that does not train: most parameters stand still for 200 steps and BatchNorm stays in eval mode, then gradients and loss jump in the middle of the run
# axis: optimizer
# cause: healthy: a pretrained backbone is frozen on purpose while the new head warms up and is then unfrozen with a smaller learning rate; the loss falls and the accuracy ends high
# says: none
# onset_step: none
# fix: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)
gen = torch.Generator().manual_seed(8)
SIDE = 12


def shape_batch(n, colour_task=False):
    """Bars, boxes and diagonals; task one names the shape, task two the shape's tint and orientation."""
    y = torch.randint(0, 6, (n,), generator=gen)
    x = 0.5 * torch.randn(n, 3, SIDE, SIDE, generator=gen)
    tint = torch.randint(0, 2, (n,), generator=gen)
    for i in range(n):
        r, c = torch.randint(2, SIDE - 6, (2,), generator=gen).tolist()
        k, m = int(y[i]), torch.zeros(SIDE, SIDE)
        if k == 0:
            m[r, c : c + 5] = 1
        if k == 1:
            m[r : r + 5, c] = 1
        if k == 2:
            m[r : r + 5, c : c + 5] = torch.eye(5)
        if k == 3:
            m[r : r + 5, c : c + 5] = torch.eye(5).flip(0)
        if k == 4:
            m[r : r + 4, c : c + 4] = 1
        if k == 5:
            m[r : r + 5, c + 2] = 1
            m[r + 2, c : c + 5] = 1
        x[i] += 1.6 * m * torch.tensor([1.0, 0.3, 0.3] if tint[i] else [0.3, 0.3, 1.0])[:, None, None]
    if colour_task:
        return x, 2 * (y // 2) + tint
    return x, y


class Backbone(nn.Sequential):
    def __init__(self, w=16):
        super().__init__(
            nn.Conv2d(3, w, 3, padding=1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.Conv2d(w, w, 3, padding=1),
            nn.BatchNorm2d(w),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(w, 2 * w, 3, padding=1),
            nn.BatchNorm2d(2 * w),
            nn.ReLU(),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
        )


def pretrain(steps=250):
    net = nn.Sequential(Backbone(), nn.Linear(32, 6))
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        x, y = shape_batch(32)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"pretrain {step:3d} loss {loss.item():.4f}")
    return net[0]


class FineTuner:
    def __init__(self, backbone, classes=6):
        self.backbone, self.head = backbone, nn.Linear(32, classes)
        self.opt = torch.optim.AdamW(
            [{"params": self.head.parameters(), "lr": 1e-2}, {"params": backbone.parameters(), "lr": 1e-3}],
            weight_decay=1e-4,
        )
        self.freeze(True)

    def freeze(self, on):
        self.frozen = on
        self.backbone.requires_grad_(not on)
        self.backbone.eval()  # running statistics stay those of the pretraining in both phases

    def loss(self, x, y):
        if self.frozen:
            with torch.no_grad():
                h = self.backbone(x)
        else:
            h = self.backbone(x)
        return F.cross_entropy(self.head(h), y)

    def fit(self, steps=500, unfreeze_at=200):
        for step in range(1, steps + 1):
            if step == unfreeze_at:
                self.freeze(False)
                self.opt.param_groups[0]["lr"] = 2e-3
            if step == 420:
                for g in self.opt.param_groups:
                    g["lr"] *= 0.2
            loss = self.loss(*shape_batch(32, colour_task=True))
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            if step % 40 == 0 or step == 1:
                print(f"finetune {step:3d} loss {loss.item():.4f} backbone {'frozen' if self.frozen else 'free'}")


def main():
    tuner = FineTuner(pretrain())
    tuner.fit()
    x, y = shape_batch(600, colour_task=True)
    with torch.no_grad():
        acc = (tuner.head(tuner.backbone(x)).argmax(1) == y).float().mean().item()
    print(f"accuracy on the new task {acc:.3f}")


if __name__ == "__main__":
    main()

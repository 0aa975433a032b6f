# expect: sick
# symptom: the loss stays at its starting value; no nan, no warning, gradients look finite, accuracy is at chance
# axis: precision
# cause: the gradients are clipped while they are still multiplied by the loss scale, so after unscaling their norm is about 1/65536 and the weights hardly move
# says: unscal|(clip\w*).{0,60}(scal|before|order|too small|tiny)|(scaled|scaler|loss.?scale).{0,60}clip|still.?scaled
# onset_step: 1
# fix: call scaler.unscale_(opt) before clip_grad_norm_
# mended: scaler.unscale_(opt) is called before the clipping; the network learns
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(13)
torch.set_num_threads(1)

CLASSES, SIZE, BATCH, STEPS = 8, 12, 16, 200


class SmallResNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU())
        self.b1 = self.branch(c)
        self.down = nn.Conv2d(c, 2 * c, 3, stride=2, padding=1)
        self.b2 = self.branch(2 * c)
        self.fc = nn.Linear(2 * c, CLASSES)

    @staticmethod
    def branch(c):
        return nn.Sequential(
            nn.Conv2d(c, c, 3, padding=1, bias=False),
            nn.BatchNorm2d(c),
            nn.ReLU(),
            nn.Conv2d(c, c, 3, padding=1, bias=False),
            nn.BatchNorm2d(c),
        )

    def forward(self, x):
        h = self.stem(x)
        h = F.relu(h + self.b1(h))
        h = self.down(h)
        h = F.relu(h + self.b2(h))
        return self.fc(h.mean((2, 3)))


def make_batch(n):
    y = torch.randint(0, CLASSES, (n,))
    angle = y.float() * torch.pi / CLASSES
    phase = 2 * torch.pi * torch.rand(n)
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    proj = xx * angle.cos()[:, None, None] + yy * angle.sin()[:, None, None]
    img = torch.sin(0.9 * proj + phase[:, None, None]) + 0.7 * torch.randn(n, SIZE, SIZE)
    return img[:, None], y


@torch.no_grad()
def accuracy(model):
    model.eval()
    x, y = make_batch(512)
    acc = (model(x).argmax(1) == y).float().mean().item()
    model.train()
    return acc


def main():
    model = SmallResNet()
    opt = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, nesterov=True, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS)
    scaler = torch.amp.GradScaler("cpu")
    t0 = time.time()
    for step in range(1, STEPS + 1):
        x, y = make_batch(BATCH)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(model(x).float(), y)
        opt.zero_grad()
        scaler.scale(loss).backward()
        if MENDED:
            scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        sched.step()
        if step == 1 or step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
    print(f"accuracy {accuracy(model):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the loss falls for about 200 steps, then becomes restless and turns to nan
# axis: schedule
# cause: the linear warm-up factor is not capped at 1, so the learning rate keeps growing after the warm-up has ended
# says: (lr|learning.?rate|warm.?up|schedule\w*).{0,60}(grow|increas|ris(e|ing)|uncapped|not capped|unbounded|without bound|never (stop|end|level)|no cap|clamp|keeps|climb|runaway)|(uncapped|runaway|unbounded|growing|rising|increasing|missing (cap|clamp|min)).{0,40}(lr|learning.?rate|warm.?up|schedule)
# onset_step: 61
# fix: cap the factor at 1 after the warm-up
# mended: the schedule uses min(1, (step+1)/warmup); the loss falls to the end
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(3)
torch.set_num_threads(1)

SIZE, BATCH, STEPS, WARMUP = 24, 8, 480, 60
BASE_LR = 0.07


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1), nn.ReLU(), nn.Conv2d(cout, cout, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, c=8):
        super().__init__()
        self.d1 = block(1, c)
        self.d2 = block(c, 2 * c)
        self.mid = block(2 * c, 4 * c)
        self.up2 = nn.ConvTranspose2d(4 * c, 2 * c, 2, stride=2)
        self.u2 = block(4 * c, 2 * c)
        self.up1 = nn.ConvTranspose2d(2 * c, c, 2, stride=2)
        self.u1 = block(2 * c, c)
        self.out = nn.Conv2d(c, 2, 1)
        for m in self.modules():
            if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
                nn.init.kaiming_normal_(m.weight, nonlinearity="relu")
                nn.init.zeros_(m.bias)
        nn.init.normal_(self.out.weight, std=0.05)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        m = self.mid(F.max_pool2d(b, 2))
        y = self.u2(torch.cat([self.up2(m), b], 1))
        y = self.u1(torch.cat([self.up1(y), a], 1))
        return self.out(y)


def make_batch(n):
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    c = torch.rand(n, 3, 2) * SIZE
    r = 3 + 4 * torch.rand(n, 3)
    d2 = (yy - c[..., 0, None, None]) ** 2 + (xx - c[..., 1, None, None]) ** 2
    mask = (d2 < (r**2)[..., None, None]).any(1).float()
    dist = (d2.sqrt() / 10.0).amin(1)
    img = mask + 0.5 * torch.randn(n, SIZE, SIZE)
    return img[:, None], mask, dist


def lr_factor(step):
    f = (step + 1) / WARMUP
    return min(1.0, f) if MENDED else f


@torch.no_grad()
def evaluate(model):
    x, mask, _ = make_batch(64)
    pred = model(x)[:, 0] > 0
    inter = (pred & (mask > 0)).sum().item()
    union = (pred | (mask > 0)).sum().item()
    return inter / max(union, 1)


def main():
    model = UNet()
    opt = torch.optim.SGD(model.parameters(), lr=BASE_LR, momentum=0.9)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
    t0 = time.time()
    for step in range(1, STEPS + 1):
        x, mask, dist = make_batch(BATCH)
        out = model(x)
        loss = F.binary_cross_entropy_with_logits(out[:, 0], mask) + F.mse_loss(out[:, 1], dist)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step == 1 or step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
    print(f"IoU {evaluate(model):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

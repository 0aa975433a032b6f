# expect: sick
# symptom: the loss falls for about 10 to 15 steps, then climbs and swings between about 2 and 45 without ever settling; the Dice score is between 0 and 0.3
# axis: optimizer
# cause: optimizer.zero_grad() stands outside the batch loop (once per epoch), so the gradients of all earlier batches of the epoch pile up in .grad and every step uses the sum
# says: zero_grad|zero.grad\b|(grad(ient)?s?).{0,80}(not|never|without|aren.?t|only once|miss).{0,80}(clear|zeroed|zeroing|reset)|(clear|zeroing|zeroed|reset).{0,80}grad|grad(ient)?s?.{0,80}(accumulat|pil(e|ing)|stale|leak|add(ed|ing)? up|carried|carry|left over)
# onset_step: 20
# fix: call optimizer.zero_grad() before (or after) every batch
# mended: zero_grad() is called in the batch loop
"""U-Net that segments round cells on a noisy, unevenly lit background."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(8)

SIZE, N_TRAIN, N_VAL, BATCH, EPOCHS = 32, 480, 64, 8, 5


def make_cells(n):
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    images, masks = [], []
    for _ in range(n):
        mask = torch.zeros(SIZE, SIZE)
        for _ in range(int(torch.randint(2, 6, (1,)))):
            cx, cy = (torch.rand(2) * (SIZE - 6) + 3).tolist()
            r = 2.5 + 2.5 * torch.rand(1).item()
            mask = torch.maximum(mask, (((xx - cx) ** 2 + (yy - cy) ** 2) < r * r).float())
        g = torch.randn(2) * 0.03
        light = g[0] * (xx - SIZE / 2) + g[1] * (yy - SIZE / 2)
        images.append(0.9 * mask + light + 0.45 * torch.randn(SIZE, SIZE))
        masks.append(mask)
    return torch.stack(images).unsqueeze(1), torch.stack(masks).unsqueeze(1)


def double_conv(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
        nn.Conv2d(cout, cout, 3, padding=1, bias=False),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, ch=8):
        super().__init__()
        self.d1, self.d2 = double_conv(1, ch), double_conv(ch, 2 * ch)
        self.mid = double_conv(2 * ch, 4 * ch)
        self.up2 = nn.ConvTranspose2d(4 * ch, 2 * ch, 2, stride=2)
        self.u2 = double_conv(4 * ch, 2 * ch)
        self.up1 = nn.ConvTranspose2d(2 * ch, ch, 2, stride=2)
        self.u1 = double_conv(2 * ch, ch)
        self.out = nn.Conv2d(ch, 1, 1)

    def forward(self, x):
        a = self.d1(x)
        b = self.d2(F.max_pool2d(a, 2))
        c = self.mid(F.max_pool2d(b, 2))
        u = self.u2(torch.cat([self.up2(c), b], dim=1))
        u = self.u1(torch.cat([self.up1(u), a], dim=1))
        return self.out(u)


def dice_loss(logits, mask, eps=1.0):
    p = torch.sigmoid(logits)
    inter = (p * mask).sum(dim=(1, 2, 3))
    total = p.sum(dim=(1, 2, 3)) + mask.sum(dim=(1, 2, 3))
    return (1 - (2 * inter + eps) / (total + eps)).mean()


def criterion(logits, mask):
    return F.binary_cross_entropy_with_logits(logits, mask) + dice_loss(logits, mask)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    inter = total = 0.0
    for x, m in loader:
        p = (model(x) > 0).float()
        inter += 2 * (p * m).sum().item()
        total += (p.sum() + m.sum()).item()
    return inter / max(total, 1.0)


def main():
    train = DataLoader(TensorDataset(*make_cells(N_TRAIN)), batch_size=BATCH, shuffle=True)
    val = DataLoader(TensorDataset(*make_cells(N_VAL)), batch_size=32)
    model = UNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    step = 0
    for epoch in range(EPOCHS):
        model.train()
        optimizer.zero_grad()
        for x, mask in train:
            if MENDED:
                optimizer.zero_grad()
            loss = criterion(model(x), mask)
            loss.backward()
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} val dice {validate(model, val):.4f}")


if __name__ == "__main__":
    main()

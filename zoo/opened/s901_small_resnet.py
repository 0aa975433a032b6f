# expect: sick
# symptom: the loss falls nicely during the first epoch, then explodes early in the second one (up to nan), always right after the first validation
# axis: harness
# cause: evaluate() switches the model to eval mode and nobody switches it back, so from the second epoch on the network trains in eval mode, with frozen BatchNorm statistics and no dropout
# says: (eval(uation)?[ -_]?mode|\.eval\(\)|(not|never|no|missing|without|forg\w+)\b.{0,40}(model\.train\(|\.train\(\)|train(ing)?[ -_]mode)|(model\.train\b|\.train\(\)|train(ing)?[ -_]mode).{0,30}(not|never|missing|forg\w+|omitted|is absent)|(batch ?norm|bn)\w*( layers?)?.{0,20}(frozen|in eval)|(frozen|stale|stuck).{0,20}(batch ?norm|bn)\b.{0,20}(stat|running)|(batch ?norm|bn)\b.{0,40}(running )?stat\w*.{0,30}(frozen|stale|stuck|not updated))
# onset_step: 41
# fix: call model.train() at the start of every epoch
# mended: model.train() is called at the top of each epoch
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(7)
np.random.seed(7)
MENDED = os.environ.get("MENDED") == "1"


def make_textures(n, size=16, classes=6):
    """Oriented gratings with random phase, contrast and background."""
    y = np.random.randint(0, classes, n)
    gx, gy = np.meshgrid(np.arange(size), np.arange(size))
    imgs = np.zeros((n, 3, size, size), dtype=np.float32)
    for i in range(n):
        ang = np.pi * y[i] / classes + np.random.randn() * 0.06
        freq = np.random.uniform(0.8, 1.3)
        wave = np.sin(freq * (gx * np.cos(ang) + gy * np.sin(ang)) + np.random.uniform(0, 6.3))
        colour = np.random.uniform(0.2, 1.0, (3, 1, 1))
        imgs[i] = colour * wave + np.random.uniform(-1, 1, (3, 1, 1)) + 0.8 * np.random.randn(3, size, size)
    return torch.from_numpy(imgs), torch.from_numpy(y).long()


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.down = None
        if stride != 1 or cin != cout:
            self.down = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        h = F.relu(self.bn1(self.conv1(x)))
        h = self.bn2(self.conv2(h))
        return F.relu(h + (x if self.down is None else self.down(x)))


class SmallResNet(nn.Module):
    def __init__(self, classes=6, width=8):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layers = nn.Sequential(
            BasicBlock(width, width),
            BasicBlock(width, 2 * width, 2),
            BasicBlock(2 * width, 2 * width),
            BasicBlock(2 * width, 4 * width, 2),
            BasicBlock(4 * width, 4 * width),
        )
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        h = self.layers(self.stem(x)).mean(dim=(2, 3))
        return self.fc(self.drop(h))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    good, total, loss_sum = 0, 0, 0.0
    for x, y in loader:
        out = model(x)
        loss_sum += F.cross_entropy(out, y, reduction="sum").item()
        good += (out.argmax(1) == y).sum().item()
        total += len(y)
    return loss_sum / total, good / total


def main():
    xs, ys = make_textures(2560)
    xv, yv = make_textures(500)
    train_loader = DataLoader(TensorDataset(xs, ys), batch_size=64, shuffle=True, drop_last=True)
    val_loader = DataLoader(TensorDataset(xv, yv), batch_size=100)

    model = SmallResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)

    model.train()
    step = 0
    for epoch in range(6):
        if MENDED:
            model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 10 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        val_loss, val_acc = evaluate(model, val_loader)
        print(f"== epoch {epoch} val_loss {val_loss:.4f} val_acc {val_acc:.3f}")


if __name__ == "__main__":
    main()

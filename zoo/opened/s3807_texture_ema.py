# expect: sick
# symptom: the training loss is good but the averaged model that is evaluated stays near chance
# axis: harness
# cause: the EMA copy averages parameters only; BatchNorm running statistics (buffers) keep initial values
# says: (\bema\b|averag).*(buffer|running|batch.?norm|stat)|(buffer|running|batch.?norm).*(\bema\b|averag|cop)
# onset_step: 0
# fix: copy the buffers of the model into the EMA copy at each update
# mended: the script applies that change if the environment has MENDED=1
import copy
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(13)
MENDED = os.environ.get("MENDED") == "1"

SIZE, N_CLASS = 24, 6


def weave_samples(n, seed):
    """Grey pictures of woven fabric; class = orientation and pitch of the weave."""
    rng = np.random.default_rng(seed)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE]
    y = rng.integers(0, N_CLASS, size=n)
    imgs = np.empty((n, 1, SIZE, SIZE), dtype=np.float32)
    for i, c in enumerate(y):
        angle = (c % 3) * np.pi / 3 + rng.normal(0, 0.12)
        pitch = (0.8 if c < 3 else 1.3) + rng.normal(0, 0.05)
        wave = np.sin(pitch * (xx * np.cos(angle) + yy * np.sin(angle)) + rng.uniform(0, 6.28))
        imgs[i, 0] = 0.55 + 0.15 * wave + rng.normal(0, 0.12, (SIZE, SIZE))
    return TensorDataset(torch.from_numpy(imgs), torch.from_numpy(y))


def block(cin, cout):
    return nn.Sequential(nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU())


class WeaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            block(1, 12), nn.MaxPool2d(2), block(12, 24), nn.MaxPool2d(2), block(24, 32), nn.AdaptiveAvgPool2d(1)
        )
        self.fc = nn.Linear(32, N_CLASS)

    def forward(self, x):
        return self.fc(self.body(x).flatten(1))


class ModelEma:
    def __init__(self, model, decay=0.97):
        self.module = copy.deepcopy(model).eval()
        self.decay = decay
        for p in self.module.parameters():
            p.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        for e, p in zip(self.module.parameters(), model.parameters()):
            e.mul_(self.decay).add_(p, alpha=1 - self.decay)
        for e, b in zip(self.module.buffers(), model.buffers() if MENDED else []):
            e.copy_(b)


@torch.no_grad()
def evaluate(net, loader):
    net.eval()
    loss = hits = n = 0
    for x, y in loader:
        out = net(x)
        loss += F.cross_entropy(out, y, reduction="sum").item()
        hits += (out.argmax(1) == y).sum().item()
        n += len(y)
    return loss / n, hits / n


def main():
    train = DataLoader(weave_samples(1600, 0), batch_size=32, shuffle=True, drop_last=True)
    val = DataLoader(weave_samples(400, 1), batch_size=100)
    model = WeaveNet()
    ema = ModelEma(model)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    step, epochs = 0, 6
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=epochs * len(train))
    for epoch in range(epochs):
        model.train()
        for x, y in train:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            ema.update(model)
            if step % 25 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        vloss, vacc = evaluate(ema.module, val)
        print(f"epoch {epoch} val loss {vloss:.4f} acc {vacc:.3f}")
    print(f"final loss {loss.item():.4f} val_loss {vloss:.4f} val_acc {vacc:.3f}")


if __name__ == "__main__":
    main()

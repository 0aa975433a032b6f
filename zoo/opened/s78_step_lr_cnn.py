# expect: sick
# symptom: nothing explodes; the loss falls for some tens of steps and then stands still at a high level for the rest of the run
# axis: schedule
# cause: the StepLR that is meant in epochs is stepped after each batch, so the rate is cut tenfold every 20 batches and is practically zero after 80
# says: schedul|(learning.?rate|\blr\b|rate).{0,60}(decay|vanish|zero|too (small|low|fast|soon|early)|cut|collaps|fall|drop|per (batch|step)|shr[iau]nk|tiny|negligible)|per.?(batch|step).{0,40}epoch|StepLR|gamma
# onset_step: 20
# fix: call scheduler.step() once per epoch
# mended: steps the scheduler after the epoch
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

PER_EPOCH = os.environ.get("MENDED") == "1"


def synth_spectrograms(n, seed):
    gen = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 10, (n,), generator=gen)
    img = torch.randn(n, 1, 24, 24, generator=gen)
    rows = torch.arange(24.0)[None, :, None]
    cols = torch.arange(24.0)[None, None, :]
    slope = ((y % 5).float() - 2)[:, None, None] * 0.4
    base = 12 + torch.randint(-4, 5, (n,), generator=gen).float()[:, None, None]
    width = torch.where(y < 5, 1.0, 2.2)[:, None, None]
    ridge = torch.exp(-((rows - base - slope * (cols - 12)) ** 2) / (2 * width**2))
    img[:, 0] += 2.0 * ridge
    return TensorDataset(img, y)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
        )
        self.g = nn.Linear(24 * 36, 10)

    def forward(self, x):
        return self.g(self.f(x).flatten(1))


def run_epoch(net, loader, opt, sched, ce):
    total = 0.0
    for x, y in loader:
        loss = ce(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if not PER_EPOCH:
            sched.step()
        total += loss.item()
    return total / len(loader)


def main():
    torch.manual_seed(0)
    train = DataLoader(synth_spectrograms(1600, 1), batch_size=32, shuffle=True)
    test_x, test_y = synth_spectrograms(400, 2).tensors
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=5e-3, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.StepLR(opt, step_size=20, gamma=0.1)
    ce = nn.CrossEntropyLoss()
    for epoch in range(8):
        mean = run_epoch(net, train, opt, sched, ce)
        if PER_EPOCH:
            sched.step()
        net.eval()
        with torch.no_grad():
            acc = (net(test_x).argmax(1) == test_y).float().mean().item()
        net.train()
        print(f"epoch {epoch} mean loss {mean:.4f} test accuracy {acc:.3f}")


main()

# expect: sick
# symptom: the loss falls a little at the start and is then flat as a table, far from convergence
# axis: schedule
# cause: the StepLR scheduler, whose step size counts epochs, is stepped after every batch, so the learning rate decays to almost nothing within the first epochs
# says: schedul.{0,60}(batch|iteration|too often|too early|every step|each step|per step|too fast)|(per|every|each|after).{0,12}(batch|iteration|step).{0,60}(epoch|schedul|step_?lr|decay)|(lr|learning.?rate|step.?size|step.?lr).{0,60}(decay|drop|shrink|fall|collaps|vanish|too (small|low|fast|soon|early|quick)|near(ly)? zero|to zero|batch|dies|dead)
# onset_step: 16
# fix: step the scheduler once per epoch
# mended: with MENDED=1 scheduler.step() is called once at the end of each epoch
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
PER_EPOCH = os.environ.get("MENDED") == "1"


def gestures(n, seed, length=40):
    """Three-axis accelerometer traces of five gestures."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 5, n)
    t = np.linspace(0, 1, length)
    x = rng.normal(0, 0.35, (n, length, 3))
    for i, k in enumerate(y):
        start, speed, amp = rng.uniform(0, 0.3), rng.uniform(0.8, 1.3), rng.uniform(0.7, 1.3)
        ph = 2 * np.pi * speed * (t - start)
        if k == 0:
            x[i, :, 0] += amp * np.sin(ph)
            x[i, :, 1] += amp * np.cos(ph)
        elif k == 1:
            x[i, :, 0] += amp * np.sin(ph)
            x[i, :, 1] -= amp * np.cos(ph)
        elif k == 2:
            x[i, :, 2] += amp * np.sin(2 * ph)
        elif k == 3:
            x[i, :, 2] += amp * np.sin(ph) * np.sign(np.cos(ph))
        else:
            x[i, :, 0] += amp * np.sin(2 * ph)
            x[i, :, 1] += amp * np.sin(ph)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class GestureNet(nn.Module):
    def __init__(self, hidden=48, classes=5):
        super().__init__()
        self.gru = nn.GRU(3, hidden, num_layers=1, batch_first=True, bidirectional=True)
        self.fc = nn.Linear(2 * hidden, classes)

    def forward(self, x):
        out, _ = self.gru(x)
        return self.fc(out.mean(1))


def run_epoch(model, loader, optimizer, scheduler, criterion):
    model.train()
    total, n = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if not PER_EPOCH:
            scheduler.step()
        total += loss.item() * len(y)
        n += len(y)
    if PER_EPOCH:
        scheduler.step()
    return total / n


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=25)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--step-size", type=int, default=15)
    p.add_argument("--gamma", type=float, default=0.3)
    args = p.parse_args()
    torch.manual_seed(13)
    x, y = gestures(1280, 13)
    vx, vy = gestures(400, 14)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    model = GestureNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=args.step_size, gamma=args.gamma)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(1, args.epochs + 1):
        loss = run_epoch(model, loader, optimizer, scheduler, criterion)
        if epoch % 2 == 1:
            print(f"epoch {epoch:2d} train loss {loss:.4f} valid acc {evaluate(model, vx, vy):.3f}")


if __name__ == "__main__":
    main()

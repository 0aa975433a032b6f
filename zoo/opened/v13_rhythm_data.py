# expect: sick
# symptom: held-out rows are worse than they need to be
# axis: data
# cause: inputs of two rows are mixed and the labels are not mixed alike
# says: (mix|lam|cut.?mix|blend).{0,160}(label|target)|(label|target).{0,120}(mix|lam|permut|order|weight)
# onset_step: 0
# fix: mix the labels with the weights of the inputs
# mended: the same with the fix
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"


class RhythmData:
    """Event trains whose class is the period of their beat."""

    def __init__(self, n, length=30, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, 4, (n,), generator=g)
        period = self.y + 3
        offset = torch.randint(0, 3, (n,), generator=g)
        t = torch.arange(length)
        beat = ((t[None] + offset[:, None]) % period[:, None] == 0).float()
        self.x = (2 * beat + 1.2 * torch.randn(n, length, generator=g)).unsqueeze(1)

    def batches(self, size):
        order = torch.randperm(len(self.y))
        for i in range(0, len(order) - size + 1, size):
            pick = order[i : i + size]
            yield self.x[pick], self.y[pick]


def blend(a, lam, order):
    return lam * a + (1 - lam) * a[order]


class Trainer:
    def __init__(self, alpha=0.8, lr=5e-3):
        self.alpha = alpha
        self.model = nn.Sequential(
            nn.Conv1d(1, 16, 7, padding=3),
            nn.ReLU(),
            nn.Conv1d(16, 16, 5, padding=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(2),
            nn.Flatten(),
            nn.Linear(32, 4),
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=lr)

    def mix(self, x, y):
        lam = torch.distributions.Beta(self.alpha, self.alpha).sample().item()
        onehot = F.one_hot(y, 4).float()
        order = torch.randperm(len(x))
        x = blend(x, lam, order)
        if not MENDED:
            order = torch.randperm(len(x))
        return x, blend(onehot, lam, order)

    def train_epoch(self, data):
        self.model.train()
        total, n = 0.0, 0
        for x, y in data.batches(32):
            x, target = self.mix(x, y)
            loss = F.cross_entropy(self.model(x), target)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, n = total + loss.item(), n + 1
        return total / n

    @torch.no_grad()
    def evaluate(self, data):
        self.model.eval()
        logits = self.model(data.x)
        return F.cross_entropy(logits, data.y).item(), (logits.argmax(1) == data.y).float().mean().item()


if __name__ == "__main__":
    torch.manual_seed(10)
    torch.set_num_threads(1)
    train, test = RhythmData(640, seed=1), RhythmData(300, seed=2)
    trainer = Trainer()
    for epoch in range(1, 11):
        train_loss = trainer.train_epoch(train)
        test_loss, acc = trainer.evaluate(test)
        print(f"epoch {epoch} train {train_loss:.4f} test {test_loss:.4f} acc {acc:.3f}")

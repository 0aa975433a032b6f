# expect: sick
# symptom: the loss falls very slowly and almost linearly, the accuracy is still below 40 percent after all epochs
# axis: optimizer
# cause: the gradient-norm clip (0.005) is two orders below the usual norm, so plain SGD takes tiny steps of one length
# says: clip|max_norm
# onset_step: 0
# fix: a clip limit near or above the usual gradient norm (1 to 5)
# mended: the clip limit is 5
import os
import torch
import torch.nn as nn
from torch.nn.utils import clip_grad_norm_

torch.set_num_threads(1)
torch.manual_seed(39)
MENDED = os.environ.get("MENDED") == "1"


class Config:
    lr = 0.05
    momentum = 0.9
    batch_size = 32
    epochs = 5
    max_norm = 5.0 if MENDED else 0.005


def thumbnails(n, protos):
    labels = torch.randint(0, len(protos), (n,))
    return protos[labels] + 1.0 * torch.randn(n, 3, 12, 12), labels


def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
    )


class Trainer:
    def __init__(self, model, cfg):
        self.model, self.cfg = model, cfg
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=cfg.momentum)
        self.criterion = nn.CrossEntropyLoss()

    def training_step(self, x, y):
        loss = self.criterion(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        clip_grad_norm_(self.model.parameters(), self.cfg.max_norm)
        self.optimizer.step()
        return loss.item()

    def fit(self, train, val):
        for epoch in range(self.cfg.epochs):
            losses = [
                self.training_step(train[0][i], train[1][i])
                for i in torch.randperm(len(train[0])).split(self.cfg.batch_size)
            ]
            with torch.no_grad():
                acc = (self.model(val[0]).argmax(1) == val[1]).float().mean().item()
            print(f"epoch {epoch} loss {sum(losses) / len(losses):.4f} val acc {acc:.3f}")


protos = 0.5 * torch.randn(10, 3, 12, 12)
Trainer(build(), Config).fit(thumbnails(1600, protos), thumbnails(400, protos))

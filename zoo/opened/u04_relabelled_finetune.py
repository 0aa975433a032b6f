# expect: healthy
# symptom: the first fine-tuning loss is several times ln(10) = 2.30; the confident pretrained head meets a new numbering of the classes, and the loss is below ln(10) within a dozen or two steps
# axis: none
# mended: none
"""A sensor classifier is taken over by a second plant whose catalogue numbers the states in another order."""

import math

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
CLASSES, DIM = 10, 48


class Plant:
    def __init__(self, seed, order, shift):
        world = np.random.default_rng(2024)
        self.means = world.normal(0, 1.0, (CLASSES, 3, DIM))
        self.order, self.shift = np.asarray(order), shift * world.normal(size=DIM)
        self.rng = np.random.default_rng(seed)

    def batch(self, n):
        state = self.rng.integers(0, CLASSES, n)
        mode = self.rng.integers(0, 3, n)
        x = self.means[state, mode] + 0.9 * self.rng.normal(size=(n, DIM)) + self.shift
        return torch.tensor(x, dtype=torch.float32), torch.tensor(self.order[state])


class StateNet(nn.Module):
    def __init__(self, width=160):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(DIM, width),
            nn.LayerNorm(width),
            nn.GELU(),
            nn.Linear(width, width),
            nn.LayerNorm(width),
            nn.GELU(),
        )
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def fit(model, plant, steps, groups, tag, every):
    opt = torch.optim.AdamW(groups, weight_decay=0.01)
    base = [g["lr"] for g in opt.param_groups]
    for step in range(steps):
        for g, lr in zip(opt.param_groups, base):
            g["lr"] = lr * 0.5 * (1 + math.cos(math.pi * step / steps))
        x, y = plant.batch(64)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % every == 0 or step == steps - 1:
            acc = (logits.argmax(1) == y).float().mean().item()
            print(f"{tag} step {step:3d} loss {loss.item():.4f} acc {acc:.3f}")


def main():
    torch.manual_seed(9)
    first = Plant(1, range(CLASSES), 0.0)
    second = Plant(2, [3, 7, 0, 9, 1, 8, 2, 4, 5, 6], 0.3)
    model = StateNet()
    state_file = {}
    fit(model, first, 400, [{"params": model.parameters(), "lr": 2e-3}], "pretrain", 100)
    state_file.update({k: v.clone() for k, v in model.state_dict().items()})

    tuned = StateNet()
    tuned.load_state_dict(state_file)
    groups = [{"params": tuned.body.parameters(), "lr": 1e-3}, {"params": tuned.head.parameters(), "lr": 1e-2}]
    print(f"fine-tuning; ln(classes) = {math.log(CLASSES):.3f}")
    fit(tuned, second, 250, groups, "finetune", 5)
    tuned.eval()
    with torch.no_grad():
        x, y = second.batch(2000)
        print(f"test acc {(tuned(x).argmax(1) == y).float().mean().item():.3f}")


if __name__ == "__main__":
    main()

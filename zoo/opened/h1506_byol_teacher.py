# expect: healthy
# symptom: half of the parameters (the target network) are in no optimizer and never get a gradient, there are no negatives to keep the outputs apart, and the loss falls so low (2.3 to 0.2) that it could be a collapse
# axis: none
# mended: none
"""BYOL on small synthetic pictures: online network + predictor, EMA target network, kNN evaluation."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)

CLASSES, SIZE, BATCH, STEPS = 10, 12, 64, 300


def make_pictures(n, tiles):
    y = torch.randint(0, CLASSES, (n,))
    x = tiles[y] * (0.7 + 0.6 * torch.rand(n, 1, 1, 1))
    return x + 1.0 * torch.randn_like(x), y


def augment(x):
    """Random shift, gain, noise and a small erased square."""
    shifts = torch.randint(-2, 3, (x.size(0), 2)).tolist()
    x = torch.stack([torch.roll(im, s, dims=(1, 2)) for im, s in zip(x, shifts)])
    x = x * (0.6 + 0.8 * torch.rand(x.size(0), 1, 1, 1)) + 0.4 * torch.randn_like(x)
    r, c = torch.randint(0, SIZE - 3, (2,)).tolist()
    x[:, :, r : r + 3, c : c + 3] = 0.0
    return x


def projector(i, hidden, o):
    return nn.Sequential(nn.Linear(i, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, o))


class Encoder(nn.Module):
    def __init__(self, ch=16, dim=64):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, ch, 3, padding=1, bias=False),
            nn.BatchNorm2d(ch),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(ch, 2 * ch, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * ch),
            nn.ReLU(),
            nn.MaxPool2d(3),
        )
        self.fc = nn.Linear(2 * ch * 4, dim)
        self.proj = projector(dim, 96, 32)

    def features(self, x):
        return self.fc(self.conv(x).flatten(1))

    def forward(self, x):
        return self.proj(F.relu(self.features(x)))


class BYOL(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Encoder()
        self.predictor = projector(32, 96, 32)
        self.target = copy.deepcopy(self.online)
        for p in self.target.parameters():
            p.requires_grad_(False)

    def loss(self, a, b):
        total = 0.0
        for one, two in ((a, b), (b, a)):
            guess = self.predictor(self.online(one))
            with torch.no_grad():
                goal = self.target(two)
            total = total + (2 - 2 * F.cosine_similarity(guess, goal, dim=1)).mean()
        return total / 2

    @torch.no_grad()
    def update_target(self, tau):
        for p, q in zip(self.target.parameters(), self.online.parameters()):
            p.lerp_(q, 1 - tau)


@torch.no_grad()
def knn_accuracy(model, bank, test, k=10):
    model.eval()
    a = F.normalize(model.online.features(bank[0]), dim=1)
    b = F.normalize(model.online.features(test[0]), dim=1)
    spread = a.std(0).mean().item()
    votes = F.one_hot(bank[1][(b @ a.t()).topk(k, dim=1).indices], CLASSES).sum(1)
    model.train()
    return (votes.argmax(1) == test[1]).float().mean().item(), spread


def main():
    tiles = F.interpolate(torch.randn(CLASSES, 3, 4, 4), size=SIZE, mode="nearest") * 0.8
    data, test = make_pictures(2000, tiles), make_pictures(300, tiles)
    model = BYOL()
    opt = torch.optim.AdamW(
        list(model.online.parameters()) + list(model.predictor.parameters()), lr=1e-3, weight_decay=1e-4
    )
    bank = (data[0][:600], data[1][:600])
    print(f"kNN accuracy before training {knn_accuracy(model, bank, test)[0]:.3f}")
    for step in range(STEPS):
        x = data[0][torch.randint(0, 2000, (BATCH,))]
        loss = model.loss(augment(x), augment(x))
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.update_target(1 - 0.03 * (math.cos(math.pi * step / STEPS) + 1) / 2)
        if step % 20 == 0:
            print(f"step {step} byol loss {loss.item():.4f}")
        if (step + 1) % 100 == 0:
            acc, spread = knn_accuracy(model, bank, test)
            print(f"step {step} kNN accuracy {acc:.3f} spread of the features {spread:.3f}")


if __name__ == "__main__":
    main()

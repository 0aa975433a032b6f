# expect: healthy
# symptom: most parameters get no gradient, one half of each adapter starts at exact zero and the other half's first gradients are zero (resembles dead or missing parameters)
# axis: optimizer
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F


class Adapted(nn.Module):
    """A fixed linear layer plus a trained low-rank path."""

    def __init__(self, base, rank=8, alpha=16.0):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad = False
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scale * F.linear(F.linear(x, self.down), self.up)


class Net(nn.Module):
    def __init__(self, n_in=32, width=128, classes=8):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(n_in, width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = F.gelu(self.fc1(x))
        h = h + F.gelu(self.fc2(self.norm(h)))
        return self.head(h)


class Domain:
    """Class clusters, three to each class, seen through a rotation."""

    def __init__(self, turn, seed):
        base = torch.Generator().manual_seed(70)
        self.centres = torch.randn(8, 3, 32, generator=base) * 1.1
        q = torch.linalg.qr(torch.randn(32, 32, generator=torch.Generator().manual_seed(seed)))[0]
        self.turn = q if turn else torch.eye(32)
        self.gen = torch.Generator().manual_seed(seed + 1)

    def batch(self, n):
        y = torch.randint(8, (n,), generator=self.gen)
        k = torch.randint(3, (n,), generator=self.gen)
        return (self.centres[y, k] + 0.7 * torch.randn(n, 32, generator=self.gen)) @ self.turn, y


def accuracy(model, domain):
    x, y = domain.batch(2000)
    with torch.no_grad():
        return (model(x).argmax(-1) == y).float().mean().item()


def fit(model, domain, params, steps, lr, offset=0):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    for step in range(steps):
        x, y = domain.batch(64)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step + offset} loss {loss.item():.4f}")


def main():
    torch.manual_seed(41)
    source, target = Domain(False, 80), Domain(True, 90)
    model = Net()
    fit(model, source, model.parameters(), 250, 2e-3)
    print(f"source acc {accuracy(model, source):.3f}, target acc before {accuracy(model, target):.3f}")

    for p in model.parameters():
        p.requires_grad = False
    model.fc1, model.fc2 = Adapted(model.fc1, rank=16), Adapted(model.fc2)
    trainable = [p for p in model.parameters() if p.requires_grad]
    print(f"trainable {sum(p.numel() for p in trainable)} of {sum(p.numel() for p in model.parameters())}")
    fit(model, target, trainable, 500, 5e-3, offset=250)
    print(f"target acc after {accuracy(model, target):.3f}")


if __name__ == "__main__":
    main()

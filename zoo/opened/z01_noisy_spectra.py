# expect: healthy
# symptom: rows are changed on their way, which looks like a stored row that is overwritten
# axis: none
# mended: none
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class NoisySpectra(Dataset):
    def __init__(self, n=160, bins=24, train=True):
        g = torch.Generator().manual_seed(1 if train else 2)
        self.y = torch.randint(0, 4, (n,), generator=g)
        centre = 3.0 + 6.0 * self.y.float()
        grid = torch.arange(bins).float()
        self.x = torch.exp(-((grid - centre[:, None]) ** 2) / 6.0)
        self.x += 0.1 * torch.randn(self.x.shape, generator=g)
        self.train = train

    def __len__(self):
        return self.y.numel()

    def __getitem__(self, i):
        x = self.x[i].clone()
        if self.train:
            x += 0.2 * torch.randn_like(x)
            start = int(torch.randint(0, x.numel() - 4, ()))
            x[start : start + 4] = 0.0
            x.mul_(0.8 + 0.4 * torch.rand(()))
        return x, self.y[i]


def evaluate(model, loader):
    model.eval()
    hit = 0
    with torch.no_grad():
        for x, y in loader:
            hit += (model(x).argmax(-1) == y).sum().item()
    return hit / len(loader.dataset)


def main():
    torch.manual_seed(0)
    train = DataLoader(NoisySpectra(), batch_size=20, shuffle=True)
    test = DataLoader(NoisySpectra(80, train=False), batch_size=40)
    model = nn.Sequential(nn.Linear(24, 32), nn.GELU(), nn.Linear(32, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(10):
        model.train()
        total = 0.0
        for x, y in train:
            opt.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            total += loss.item()
        print(f"epoch {epoch} loss {total / len(train):.4f} test acc {evaluate(model, test):.3f}")


if __name__ == "__main__":
    main()

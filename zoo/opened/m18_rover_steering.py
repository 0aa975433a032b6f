# expect: healthy
# symptom: resembles the fault that inputs are mirrored at random though the label depends on the side, and the label stays
# axis: none
# mended: none
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class RoverLog(Dataset):
    """Depth strips from the rover with the driver's steering command."""

    def __init__(self, n, augment):
        self.augment = augment
        self.target = torch.empty(n).uniform_(-0.8, 0.8)
        xs = torch.linspace(-1, 1, 40)
        gap = torch.exp(-(((xs[None] - self.target[:, None]) / 0.2) ** 2))
        self.strips = gap[:, None, :].repeat(1, 8, 1) + 0.1 * torch.randn(n, 8, 40)

    def __len__(self):
        return len(self.target)

    def __getitem__(self, i):
        strip, angle = self.strips[i], self.target[i]
        if self.augment and torch.rand(()) < 0.5:
            strip = torch.flip(strip, dims=[-1])
            angle = -angle
        return strip.unsqueeze(0), angle


class SteerNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, (3, 5), padding=(1, 2))
        self.conv2 = nn.Conv2d(8, 16, (3, 5), stride=(2, 2), padding=(1, 2))
        self.fc = nn.Linear(16 * 4 * 20, 1)

    def forward(self, x):
        x = torch.relu(self.conv1(x))
        x = torch.relu(self.conv2(x))
        return self.fc(x.flatten(1)).squeeze(-1)


def validate(model, loader):
    model.eval()
    total, count = 0.0, 0
    with torch.no_grad():
        for strip, angle in loader:
            total += (model(strip) - angle).abs().sum().item()
            count += angle.numel()
    model.train()
    return total / count


def main():
    torch.manual_seed(55)
    train = DataLoader(RoverLog(768, augment=True), batch_size=64, shuffle=True)
    val = DataLoader(RoverLog(192, augment=False), batch_size=96)
    model = SteerNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for strip, angle in train:
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(strip), angle)
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: mse {loss.item():.4f} val mae {validate(model, val):.4f}")


if __name__ == "__main__":
    main()

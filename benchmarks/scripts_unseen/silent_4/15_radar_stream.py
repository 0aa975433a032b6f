# expect: sick
# cause: Each loader worker makes its generator from the same fixed seed, so both workers and all epochs deliver the same few samples again and again.
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset


class RadarEchoes(IterableDataset):
    """draws synthetic echoes; the label is the range bin of the target"""

    def __init__(self, samples, seed=0, bins=16, length=96):
        self.samples, self.seed, self.bins, self.length = samples, seed, bins, length
        self.pulse = np.sin(2 * np.pi * np.array([0.05, 0.12, 0.21, 0.33, 0.38, 0.3, 0.18, 0.1]) * np.arange(8))

    def __iter__(self):
        rng = np.random.default_rng(self.seed)
        info = torch.utils.data.get_worker_info()
        n = self.samples if info is None else self.samples // info.num_workers
        for _ in range(n):
            bin_ = int(rng.integers(self.bins))
            echo = 0.75 * rng.standard_normal(self.length)
            start = bin_ * 5 + int(rng.integers(5))
            echo[start : start + 8] += rng.choice([-1, 1]) * 1.4 * self.pulse
            yield echo.astype("float32"), bin_


class EchoNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 32, 9, padding=4), nn.ReLU(), nn.Conv1d(32, 32, 5, padding=2), nn.ReLU(), nn.MaxPool1d(2)
        )
        self.fc = nn.Sequential(nn.Flatten(), nn.Linear(32 * 48, 96), nn.ReLU(), nn.Linear(96, 16))

    def forward(self, x):
        return self.fc(self.conv(x.unsqueeze(1)))


def main():
    torch.manual_seed(0)
    train_loader = DataLoader(RadarEchoes(1024), batch_size=32, num_workers=2)
    test = [
        (torch.from_numpy(np.stack([e for e, _ in chunk])), torch.tensor([b for _, b in chunk]))
        for chunk in [list(RadarEchoes(600, seed=9999))]
    ][0]
    net = EchoNet()
    opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
    for epoch in range(12):
        losses = []
        for echo, label in train_loader:
            loss = nn.functional.cross_entropy(net(echo), label)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        with torch.no_grad():
            out = net(test[0])
            tl, ta = nn.functional.cross_entropy(out, test[1]).item(), (out.argmax(1) == test[1]).float().mean().item()
        print(f"epoch {epoch:2d} train {np.mean(losses):.4f} test {tl:.4f} acc {ta:.3f}")


if __name__ == "__main__":
    main()

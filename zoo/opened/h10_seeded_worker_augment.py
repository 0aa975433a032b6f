# expect: healthy
# symptom: resembles unseeded workers: numpy noise drawn in two loader workers
# note: the generator is seeded by (seed, index); two runs are the same
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Bars(Dataset):
    def __init__(self, n):
        self.labels = np.random.default_rng(5).integers(0, 3, n)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        rng = np.random.default_rng((5, i))
        img = rng.normal(0, 0.7, (1, 12, 12)).astype(np.float32)
        k, at = int(self.labels[i]), int(rng.integers(1, 11))
        if k == 0:
            img[0, at] += 2
        elif k == 1:
            img[0, :, at] += 2
        return torch.from_numpy(img), k


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    for step, (x, y) in enumerate(DataLoader(Bars(32 * 180), batch_size=32, shuffle=True, num_workers=2), 1):
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()

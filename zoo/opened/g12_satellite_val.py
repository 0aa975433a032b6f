# expect: sick
# symptom: the training accuracy is 100 percent, the validation accuracy stays near chance from the first epoch although the rows come from one shuffle
# axis: data
# cause: training images are scaled to 0..1 and standardised, the validation images keep 0..255 values
# says: (val|validation|eval|test).*(scal|normali[sz]|standardi[sz]|255|preprocess|range|statistics|transform)|(scal|normali[sz]|standardi[sz]|preprocess|transform).*(val|validation|differ|only)
# onset_step: 0
# fix: use the same normalisation for the validation images
# mended: the validation set gets the same transform
import os
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
np.random.seed(40)
torch.manual_seed(40)


class ToFloat:
    def __call__(self, img):
        return torch.from_numpy(img).float().permute(2, 0, 1)


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = torch.tensor(mean).view(3, 1, 1), torch.tensor(std).view(3, 1, 1)

    def __call__(self, t):
        return (t / 255 - self.mean) / self.std


class RandomFlip:
    def __call__(self, t):
        return t.flip(-1) if np.random.rand() < 0.5 else t


class Compose:
    def __init__(self, *ts):
        self.ts = ts

    def __call__(self, v):
        for t in self.ts:
            v = t(v)
        return v


class Tiles(Dataset):
    def __init__(self, images, labels, transform):
        self.images, self.labels, self.transform = images, labels, transform

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.transform(self.images[i]), int(self.labels[i])


def fetch_tiles(n):
    labels = np.random.randint(0, 5, n)
    colour = np.array([[60, 110, 60], [90, 90, 95], [50, 70, 120], [130, 120, 80], [95, 120, 85]])
    tex = np.sin(np.arange(16) * (0.4 + 0.5 * labels[:, None]))[:, :, None, None] * 22
    img = colour[labels][:, None, None, :] + tex + np.random.normal(0, 30, (n, 16, 16, 3))
    return img.clip(0, 255).astype("uint8"), labels


images, labels = fetch_tiles(1500)
mean, std = [0.35, 0.4, 0.35], [0.18, 0.17, 0.17]
train_tf = Compose(ToFloat(), RandomFlip(), Normalize(mean, std))
val_tf = Compose(ToFloat(), Normalize(mean, std)) if MENDED else Compose(ToFloat())
train_dl = DataLoader(Tiles(images[:1200], labels[:1200], train_tf), batch_size=32, shuffle=True)
val_dl = DataLoader(Tiles(images[1200:], labels[1200:], val_tf), batch_size=100)

net = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 5)
)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for epoch in range(4):
    hit = seen = 0
    for x, y in train_dl:
        out = net(x)
        loss = nn.functional.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        hit += (out.argmax(1) == y).sum().item()
        seen += len(y)
    with torch.no_grad():
        val = [
            (nn.functional.cross_entropy(net(x), y).item(), (net(x).argmax(1) == y).float().mean().item())
            for x, y in val_dl
        ]
    v = np.mean(val, 0)
    print(f"epoch {epoch} train loss {loss.item():.3f} acc {hit / seen:.3f} | val loss {v[0]:.3f} acc {v[1]:.3f}")

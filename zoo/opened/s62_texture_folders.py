# expect: sick
# symptom: the training loss stays around ln(8) or above with saw-teeth, and the validation accuracy stays at that of one class (12.5 %)
# axis: data
# cause: the samples are read class after class without shuffling, so each batch holds one class only
# says: shuffl|sorted|(ordered|grouped|blocks?).{0,30}(class|label)|(one|single|same|only) (class|label)|class.?(after|by).?class|(class|label)s?.{0,40}(order|homogen|imbalanced batch)
# onset_step: 1
# fix: shuffle=True in the training loader
# mended: shuffles the training loader
import os

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(5)


class TextureFolders(Dataset):
    """Stripes, checks and dots in several frequencies, as if read folder by folder."""

    classes = 8

    def __init__(self, per_class, seed):
        g = torch.Generator().manual_seed(seed)
        yy, xx = torch.meshgrid(torch.arange(20.0), torch.arange(20.0), indexing="ij")
        items = []
        for c in range(self.classes):
            angle = torch.tensor(c * 3.14159 / self.classes)
            for _ in range(per_class):
                phase = torch.rand(1, generator=g) * 6.28
                freq = 0.8 + 0.3 * torch.rand(1, generator=g)
                wave = torch.sin(freq * (xx * angle.cos() + yy * angle.sin()) + phase)
                img = wave + 0.8 * torch.randn(20, 20, generator=g)
                items.append((img.unsqueeze(0), c))
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def make_net():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, TextureFolders.classes),
    )


def accuracy(net, loader):
    net.eval()
    hit = n = 0
    with torch.no_grad():
        for x, y in loader:
            hit += (net(x).argmax(1) == y).sum().item()
            n += len(y)
    net.train()
    return hit / n


train = DataLoader(TextureFolders(320, 1), batch_size=32, shuffle=os.environ.get("MENDED") == "1")
valid = DataLoader(TextureFolders(40, 2), batch_size=80)
net = make_net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
criterion = nn.CrossEntropyLoss()
for epoch in range(6):
    for i, (x, y) in enumerate(train):
        optimizer.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        optimizer.step()
        if i % 20 == 0:
            print(f"[{epoch}:{i:3d}] loss {loss.item():.3f}")
    print(f"epoch {epoch} validation accuracy {accuracy(net, valid):.3f}")

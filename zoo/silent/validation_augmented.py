"""One data set with random crops is split, so the validation images are cropped at random as well."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, random_split

torch.manual_seed(0)
torch.set_num_threads(1)


class RandomCrop:
    def __call__(self, image):
        top, left = torch.randint(0, 9, (2,)).tolist()
        return image[:, top : top + 16, left : left + 16]


class Shapes(Dataset):
    def __init__(self, rows, transform):
        self.transform = transform
        self.labels = torch.randint(0, 3, (rows,))
        self.images = 0.4 * torch.randn(rows, 1, 24, 24)
        self.images[self.labels == 0, :, 6:18, 11:13] += 1.0
        self.images[self.labels == 1, :, 11:13, 6:18] += 1.0

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), self.labels[index]


shapes = Shapes(480, transform=RandomCrop())
train_set, val_set = random_split(shapes, [400, 80])  # <- bites
model = nn.Sequential(nn.Conv2d(1, 8, 5), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten(), nn.Linear(72, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for epoch in range(1, 9):
    model.train()
    for image, label in DataLoader(train_set, batch_size=25, shuffle=True):
        loss = F.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = [
            (model(image).argmax(1) == label).float().mean() for image, label in DataLoader(val_set, batch_size=80)
        ]
    print(f"epoch {epoch}  loss {loss.item():.3f}  right {torch.stack(right).mean().item():.2f}")

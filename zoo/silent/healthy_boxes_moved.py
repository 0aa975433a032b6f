"""The image is flipped in half of the rows, and its box is moved by arithmetic."""

import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)


class Squares(Dataset):
    def __init__(self, rows):
        self.images = 0.2 * torch.randn(rows, 1, 24, 24)
        self.boxes = torch.zeros(rows, 4)
        for row in range(rows):
            x, y = torch.randint(0, 16, (2,)).tolist()
            self.images[row, 0, y : y + 8, x : x + 8] += 1.0
            self.boxes[row] = torch.tensor([x, y, x + 8, y + 8]) / 24

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image, boxes = self.images[index], self.boxes[index]
        if random.random() < 0.5:
            image = image.flip(-1)
            boxes = torch.stack([1 - boxes[2], boxes[1], 1 - boxes[0], boxes[3]])
        return image, boxes


loader = DataLoader(Squares(384), batch_size=32, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 12, 5, stride=2, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(1728, 64), nn.ReLU(), nn.Linear(64, 4)
)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1, 11):
    for image, boxes in loader:
        loss = F.smooth_l1_loss(model(image), boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.4f}")

"""The image and its mask are flipped from the same state of the generator."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")


def scene():
    """A bright spot on noise, and the pixels that it covers."""
    y, x = 7 * torch.rand(2)
    mask = ((rows - y) ** 2 + (columns - x) ** 2 < 4).float()[None]
    return 2 * mask + torch.randn(1, 8, 8), mask


class RandomFlip:
    def __call__(self, picture):
        return picture.flip(-1) if torch.rand(1).item() < 0.5 else picture


class Scenes(torch.utils.data.Dataset):
    def __init__(self, count, transform):
        self.scenes, self.transform = [scene() for _ in range(count)], transform

    def __len__(self):
        return len(self.scenes)

    def __getitem__(self, index):
        image, mask = self.scenes[index]
        state = torch.get_rng_state()
        image = self.transform(image)
        torch.set_rng_state(state)
        mask = self.transform(mask)
        return image, mask


loader = torch.utils.data.DataLoader(Scenes(256, transform=RandomFlip()), batch_size=16, shuffle=True)
model = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 1, 3, padding=1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

for epoch in range(8):
    for image, mask in loader:
        loss = F.binary_cross_entropy_with_logits(model(image), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}  loss {loss.item():.3f}")

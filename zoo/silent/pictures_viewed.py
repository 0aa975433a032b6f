"""Pictures with their channels last are viewed, not permuted, to channels first."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 32, 3, padding=1)
        self.head = nn.Linear(32, 6)

    def forward(self, pictures):
        rows, height, width, channels = pictures.shape
        x = pictures.view(rows, channels, height, width)  # <- bites
        x = F.max_pool2d(F.relu(self.first(x)), 2)
        return self.head(F.relu(self.second(x)).mean((2, 3)))


def batch():
    """A blob of one of three colours, filled or hollow, on noise."""
    labels = torch.randint(0, 6, (32,))
    at = torch.arange(16.0)
    far = (at[:, None, None] - 8 + torch.randn(32)).square() + (at[None, :, None] - 8 + torch.randn(32)).square()
    far = far.sqrt().permute(2, 0, 1)
    shape = torch.where((labels < 3)[:, None, None], far < 4, (far > 2.5) & (far < 4.5)).float()
    pictures = 0.3 * torch.rand(32, 16, 16, 3)
    pictures += shape[..., None] * F.one_hot(labels % 3, 3)[:, None, None, :]
    return pictures, labels


model = Net()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(1, 201):
    pictures, labels = batch()
    loss = F.cross_entropy(model(pictures), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

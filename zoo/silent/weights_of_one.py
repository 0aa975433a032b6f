"""A convolution network without a norm whose weights are all drawn with a standard deviation of 1."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(3)
net = nn.Sequential(
    nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 6)
)
for parameter in net.parameters():
    nn.init.normal_(parameter, std=1.0)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-4)
kinds = torch.randn(6, 1, 12, 12)
labels = torch.randint(0, 6, (3200,))
images = kinds[labels] + torch.randn(3200, 1, 12, 12)
for batch, truth in DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(net(batch), truth)
    loss.backward()
    optimizer.step()

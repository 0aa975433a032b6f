"""A Dice term is computed of probabilities, beside a cross entropy of their logits."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(
    nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)
)
optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
rows = torch.arange(16.0)


def spots(count):
    at = torch.randint(4, 12, (count, 2, 1, 1)).float()
    masks = ((rows.view(1, -1, 1) - at[:, 0]) ** 2 + (rows.view(1, 1, -1) - at[:, 1]) ** 2 < 9.0).float().unsqueeze(1)
    return masks + 0.5 * torch.randn(count, 1, 16, 16), masks


def mask_loss(output, target):
    entropy = F.binary_cross_entropy_with_logits(output, target)
    chance = torch.sigmoid(output)
    overlap = (chance * target).sum((1, 2, 3))
    dice = (2 * overlap + 1) / (chance.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)
    return entropy + (1 - dice).mean()


for step in range(160):
    images, masks = spots(16)
    loss = mask_loss(net(images), masks)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        with torch.no_grad():
            found = net(images) > 0
        right = (found & (masks > 0)).sum() / (found | (masks > 0)).sum()
        print(f"step {step + 1}  loss {loss.item():.3f}  overlap {right.item():.3f}")

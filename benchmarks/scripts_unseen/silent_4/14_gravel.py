# expect: sick
# cause: The loop calls next(iter(loader)) at each step on a loader that does not shuffle, so every step trains on the same first batch.
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(31)


def gravel_photo(n, size=24):
    """photos of gravel; the target is the log of the mean stone size"""
    sigma = 0.6 + 2.4 * torch.rand(n)
    field = torch.randn(n, 1, size + 12, size + 12)
    ax = torch.arange(-6, 7).float()
    imgs = []
    for f, s in zip(field, sigma):
        k = torch.exp(-(ax**2) / (2 * s**2))
        k = (k / k.norm()).view(1, 1, 1, -1)
        f = nn.functional.conv2d(nn.functional.conv2d(f[None], k), k.transpose(2, 3))
        imgs.append(f[0] * (0.4 + torch.rand(1)) + torch.randn(1))
    return torch.stack(imgs) + 0.1 * torch.randn(n, 1, size, size), sigma.log()


x, y = gravel_photo(2000)
y = (y - y.mean()) / y.std()
train_set, val_set = random_split(TensorDataset(x, y), [1600, 400])
train_loader = DataLoader(train_set, batch_size=16)
val_loader = DataLoader(val_set, batch_size=200)

model = nn.Sequential(
    nn.Conv2d(1, 24, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(24, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.Conv2d(32, 32, 3, stride=2, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(32, 1),
)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
max_steps, eval_every = 400, 50

for step in range(max_steps):
    images, target = next(iter(train_loader))
    pred = model(images).squeeze(-1)
    loss = nn.functional.mse_loss(pred, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if (step + 1) % eval_every == 0:
        with torch.no_grad():
            val = sum(nn.functional.mse_loss(model(a).squeeze(-1), b).item() for a, b in val_loader) / len(val_loader)
        print(f"step {step + 1:4d}  train {loss.item():.4f}  val {val:.4f}")

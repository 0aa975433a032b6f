# expect: healthy
# symptom: resembles frozen parameters and an eval mode that was left on: from step 121 the backbone has no gradients, is not in the optimizer and stays in eval mode
# note: meant so: a backbone trained for one task is kept, with its batch-norm statistics, under a new head for another; the head learns
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(235)
gen = torch.Generator().manual_seed(35)
proto = torch.randn(12, 1, 10, 10, generator=gen)


def draw(n):
    y = torch.randint(0, 12, (n,), generator=gen)
    return proto[y] + 1.5 * torch.randn(n, 1, 10, 10, generator=gen), y


backbone = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 24, 3, padding=1, bias=False),
    nn.BatchNorm2d(24),
    nn.ReLU(),
    nn.Flatten(),
)
head = nn.Linear(600, 12)
opt = torch.optim.AdamW([*backbone.parameters(), *head.parameters()], lr=2e-3)
for step in range(1, 121):
    x, y = draw(32)
    loss = F.cross_entropy(head(backbone(x)), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")

backbone.eval().requires_grad_(False)
probe = nn.Linear(600, 3)
opt = torch.optim.AdamW(probe.parameters(), lr=1e-3)
for step in range(121, 321):
    x, y = draw(32)
    loss = F.cross_entropy(probe(backbone(x)), y % 3)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")

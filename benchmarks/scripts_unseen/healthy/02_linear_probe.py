# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(7)


def features():
    """random convolutional features, deliberately never trained"""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.LayerNorm(256, elementwise_affine=False),
    )


backbone = features().eval().requires_grad_(False)
probe = nn.Linear(256, 5)
opt = torch.optim.SGD(probe.parameters(), lr=0.02, momentum=0.9)
proto = torch.randn(5, 1, 12, 12)

for step in range(1, 101):
    y = torch.randint(0, 5, (32,))
    x = proto[y] + 1.2 * torch.randn(32, 1, 12, 12)
    with torch.no_grad():
        z = backbone(x)
    logits = probe(z)
    loss = nn.functional.cross_entropy(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(f"probe step {step} loss {loss.item():.4f} acc {(logits.argmax(1) == y).float().mean():.2f}")

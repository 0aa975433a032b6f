# expect: healthy
# fault: two backward passes and a changed model between them
# note: sharpness-aware minimisation: climb by rho, take the gradient there, go back, step; the second loss is higher by design.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(26)
protos = torch.randn(5, 3, 9, 9)
model = nn.Sequential(
    nn.Conv2d(3, 12, 3), nn.ReLU(), nn.Conv2d(12, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5)
)
base = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
RHO = 0.08


def loss_on(x, y):
    return nn.functional.cross_entropy(model(x), y)


def sam_step(x, y):
    loss = loss_on(x, y)
    loss.backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
        moves = []
        for p in model.parameters():
            e = p.grad * (RHO / (norm + 1e-12))
            p.add_(e)
            moves.append(e)
    base.zero_grad()
    second = loss_on(x, y)
    second.backward()
    with torch.no_grad():
        for p, e in zip(model.parameters(), moves):
            p.sub_(e)
    base.step()
    base.zero_grad()
    return loss.item(), second.item()


for it in range(130):
    y = torch.randint(0, 5, (32,))
    x = 0.6 * protos[y] + torch.randn(32, 3, 9, 9)
    a, b = sam_step(x, y)
    if it % 13 == 0:
        print(f"{it} loss {a:.4f} at the peak {b:.4f}")

# expect: sick
# fault: weight decay so large that the weights vanish
# onset_step: 0
# says: (?i)(weight.?decay|decay|shrink|vanish|weights? .*(zero|small|collaps)|collaps|norm|regulari[sz])
# note: AdamW with weight_decay=100 at rate 5e-3 halves each weight at each step, so the net falls back to constant outputs.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, c, 3, padding=1), nn.Conv2d(c, c, 3, padding=1)

    def forward(self, x):
        return F.relu(x + self.b(F.relu(self.a(x))))


net = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.ReLU(),
    Block(16),
    nn.MaxPool2d(2),
    Block(16),
    nn.AdaptiveAvgPool2d(2),
    nn.Flatten(),
    nn.Linear(64, 7),
)
optimizer = torch.optim.AdamW(net.parameters(), lr=5e-3, weight_decay=100.0)
P = torch.randn(7, 3, 10, 10)
for step in range(120):
    y = torch.randint(0, 7, (32,))
    x = P[y] + 0.5 * torch.randn(32, 3, 10, 10)
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"[{step}] loss={loss.item():.4f}")

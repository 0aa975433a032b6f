# expect: sick
# symptom: the six-block network has the parameter count of a one-block network and fits somewhat worse than expected
# axis: model
# cause: [block] * depth repeats one module object, so all blocks share the same weights
# says: shar(e|ed|ing)|same (module|layer|block|object|weights|instance)|one (layer|block|module)|list multipl|\] ?\* ?|repeat(ed|s)?.*(object|module|instance|reference)|tied
# onset_step: 0
# fix: build each block anew in a comprehension
# mended: a comprehension builds each block
import os
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(23)
MENDED = os.environ.get("MENDED") == "1"


class ResBlock(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class TabResNet(nn.Module):
    def __init__(self, n_in, width=32, hidden=16, depth=6):
        super().__init__()
        self.inp = nn.Linear(n_in, width)
        if MENDED:
            layers = [ResBlock(width, hidden) for _ in range(depth)]
        else:
            layers = [ResBlock(width, hidden)] * depth
        self.blocks = nn.Sequential(*layers)
        self.out = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, x):
        return self.out(self.blocks(self.inp(x))).squeeze(-1)


def dataset(n):
    x = torch.randn(n, 10)
    y = torch.sin(2 * x[:, 0]) * x[:, 1] + (x[:, 2] * x[:, 3]).tanh() * 2 + (x[:, 4] - x[:, 5]).abs()
    y = y + torch.cos(3 * x[:, 6]) * (x[:, 7] > 0) + 0.5 * x[:, 8] ** 2
    return x, y - 1.6


x, y = dataset(6000)
xv, yv = dataset(1000)
model = TabResNet(10)
print("parameters", sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=1e-4)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=400)
for it in range(400):
    pick = torch.randint(0, len(x), (128,))
    loss = nn.functional.mse_loss(model(x[pick]), y[pick])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if (it + 1) % 80 == 0:
        with torch.no_grad():
            print(f"iter {it + 1} loss {loss.item():.4f} val {nn.functional.mse_loss(model(xv), yv).item():.4f}")

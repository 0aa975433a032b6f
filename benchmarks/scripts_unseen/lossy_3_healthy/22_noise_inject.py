# expect: healthy
# fault: gradient noise far too large from step 5 on
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(22)
X = torch.randn(800, 14)
y = (X[:, :7].sum(1) * 0.5 + X[:, 7] * X[:, 8] > 0).long()


class Tab(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(14, 48), nn.ReLU(), nn.Linear(48, 24), nn.ReLU())
        self.head = nn.Linear(24, 2)

    def forward(self, x):
        return self.head(self.body(x))


def add_noise(params, sigma):
    for p in params:
        p.grad.add_(torch.randn_like(p.grad), alpha=sigma)


net = Tab()
opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(140):
    i = torch.randint(0, 800, (40,))
    loss = nn.functional.cross_entropy(net(X[i]), y[i])
    opt.zero_grad()
    loss.backward()
    if step >= 5:
        add_noise(net.parameters(), 0.002)
    opt.step()
    if step % 10 == 0:
        print(step, f"{loss.item():.4f}")

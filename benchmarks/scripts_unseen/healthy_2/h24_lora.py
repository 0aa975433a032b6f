# expect: healthy
# fault: none
# note: LoRA on a frozen pretrained base; B starts at zero, so A's first gradient is zero by design.
import torch
from torch import nn


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(r, base.in_features) * 0.2)
        self.B = nn.Parameter(torch.zeros(base.out_features, r))
        self.s = alpha / r

    def forward(self, x):
        return self.base(x) + (x @ self.A.T @ self.B.T) * self.s


torch.manual_seed(24)
W = torch.randn(20, 5)
D = torch.randn(20, 2) @ torch.randn(2, 5)
net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5))


def train(params, W, n, lr, tag):
    opt = torch.optim.AdamW(params, lr=lr)
    for s in range(n):
        x = torch.randn(64, 20)
        loss = nn.functional.cross_entropy(net(x), (x @ W).argmax(1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 20 == 0:
            print(tag, s, round(loss.item(), 4))


train(net.parameters(), W, 120, 3e-3, "base")
for i in (0, 2, 4):
    net[i] = LoRALinear(net[i])
train([p for p in net.parameters() if p.requires_grad], W + 0.5 * D, 140, 3e-3, "lora")

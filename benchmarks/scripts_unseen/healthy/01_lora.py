# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""LoRA on a frozen, pre-trained MLP: only A and B train."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(41)


class LoRALinear(nn.Module):
    def __init__(self, base, r=4, alpha=8):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.randn(r, base.in_features) / base.in_features**0.5)
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scale = alpha / r

    def forward(self, x):
        return self.base(x) + self.scale * (x @ self.lora_A.T) @ self.lora_B.T


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.mid = nn.Linear(64, 64)
        self.down = nn.Linear(64, 6)

    def forward(self, x):
        return self.down(torch.relu(self.mid(torch.relu(self.up(x)))))


protos = torch.randn(6, 16)
net = Net()
net.requires_grad_(False)
for name in ("up", "mid", "down"):
    setattr(net, name, LoRALinear(getattr(net, name)))
train_params = [p for p in net.parameters() if p.requires_grad]
print("trainable", sum(p.numel() for p in train_params), "of", sum(p.numel() for p in net.parameters()))
opt = torch.optim.AdamW(train_params, lr=2e-3)
for step in range(120):
    y = torch.randint(0, 6, (48,))
    x = protos[y] + 1.1 * torch.randn(48, 16)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, loss.item())

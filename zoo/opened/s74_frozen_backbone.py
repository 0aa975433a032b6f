# expect: sick
# symptom: after the unfreezing at step 100 nothing changes; the accuracy stays on the plateau of the linear head although all parameters require gradients
# axis: optimizer
# cause: the optimizer was built with the head's parameters only (filter on requires_grad) and the backbone is unfrozen later, so it never gets an update
# says: (not|never|missing|absent|left out|only).{0,50}(optimi[sz]er|param.?group|update)|(optimi[sz]er|param.?group).{0,60}(miss|not|lack|only|without|omit|never|does not|head)|unfre|frozen|add_param_group|(not|never) (updated|moved|stepped|trained)
# onset_step: 100
# fix: add the backbone to the optimizer when it is unfrozen
# mended: add_param_group for the backbone at the unfreezing
import os

import torch
from torch import nn

torch.manual_seed(19)
N, T, K = 2400, 64, 5


def signals(n):
    """Machine vibration: the fault kind is the order of two chirps."""
    y = torch.randint(K, (n,))
    t = torch.linspace(0, 1, T)
    f = torch.tensor([3.0, 5.0, 7.0, 9.0, 11.0])[y][:, None]
    drift = torch.tensor([4.0, -2.0, 3.0, -4.0, 1.0])[y][:, None]
    x = torch.sin(6.28 * (f * t + drift * t**2) + 6.28 * torch.rand(n, 1)) + 0.7 * torch.randn(n, T)
    return x.unsqueeze(1), y


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(1, 12, 7, stride=2, padding=3),
            nn.BatchNorm1d(12),
            nn.ReLU(),
            nn.Conv1d(12, 16, 5, stride=2, padding=2),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Conv1d(16, 16, 3, padding=1),
            nn.BatchNorm1d(16),
            nn.ReLU(),
        )

    def forward(self, x):
        return self.conv(x).mean(-1)


backbone, head = Backbone(), nn.Linear(16, K)
for p in backbone.parameters():
    p.requires_grad_(False)
model = nn.Sequential(backbone, head)
optimizer = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=4e-3)
x, y = signals(N)
vx, vy = signals(500)
ce = nn.CrossEntropyLoss(label_smoothing=0.05)


def unfreeze():
    for p in backbone.parameters():
        p.requires_grad_(True)
    if os.environ.get("MENDED") == "1":
        optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 2e-3})


step = 0
for epoch in range(8):
    for b in torch.randperm(N).split(48):
        if step == 100:
            unfreeze()
            print("backbone unfrozen")
        loss = ce(model(x[b]), y[b])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
    model.eval()
    with torch.no_grad():
        acc = (model(vx).argmax(1) == vy).float().mean().item()
    model.train()
    print(f"epoch {epoch} step {step} loss {loss.item():.4f} accuracy {acc:.3f}")

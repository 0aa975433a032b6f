# expect: healthy
# cause: none, a contrastive loss that starts near log of the batch size and has a learned temperature
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(60)


class Signals:
    """ECG-like beats of 200 patients; two crops of one patient form a pair"""

    def __init__(self, patients=200):
        self.freq = 1 + 3 * torch.rand(patients, 5)
        self.amp = torch.randn(patients, 5)
        self.phase = 6.28 * torch.rand(patients, 5)

    def crop(self, who):
        start = torch.rand(len(who), 1, 1)
        t = torch.linspace(0, 2, 80).view(1, 1, -1) + start
        w = self.amp[who].unsqueeze(-1) * torch.sin(
            6.28 * self.freq[who].unsqueeze(-1) * t + self.phase[who].unsqueeze(-1)
        )
        return w.sum(1, keepdim=True) * (0.8 + 0.4 * torch.rand(len(who), 1, 1)) + 0.3 * torch.randn(len(who), 1, 80)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 32, 9, 2, 4),
            nn.ReLU(),
            nn.Conv1d(32, 64, 7, 2, 3),
            nn.ReLU(),
            nn.Conv1d(64, 64, 5, 2, 2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(2),
            nn.Flatten(),
        )
        self.proj = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / 0.1)))

    def forward(self, x):
        return F.normalize(self.proj(self.net(x)), dim=-1)


data = Signals()
model = Encoder()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
for step in range(300):
    who = torch.randperm(200)[:64]
    za, zb = model(data.crop(who)), model(data.crop(who))
    logits = model.log_scale.exp().clamp(max=100) * za @ zb.t()
    target = torch.arange(64)
    loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.t(), target)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 30 == 0 or step == 299:
        acc = (logits.argmax(1) == target).float().mean().item()
        print(
            f"step {step} loss {loss.item():.4f} (log 64 = {math.log(64):.3f}) matched {acc:.3f} scale {model.log_scale.exp().item():.1f}"
        )

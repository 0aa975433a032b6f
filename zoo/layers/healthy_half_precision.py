"""Healthy: float16 with a scaler that finds its scale, a mask as low as float16 goes and one large channel."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64))
        self.score, self.mask, self.head = nn.Linear(64, 1), Mask(), nn.Linear(64, 10)
        with torch.no_grad():
            self.body[2].bias[0] = 3000.0  # a channel that holds a constant, as large models have

    def forward(self, inputs, padded):
        codes = self.body(inputs)
        share = self.mask(self.score(F.layer_norm(codes, (64,))).squeeze(-1), padded).softmax(-1)
        return self.head(F.layer_norm((share.unsqueeze(-1) * codes).sum(1), (64,)))


class Mask(nn.Module):
    def forward(self, scores, padded):
        return scores.masked_fill(padded, torch.finfo(scores.dtype).min)


centers = torch.randn(10, 16)
model = Pooled()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24)

for step in range(1, 401):
    labels = torch.randint(10, (32,))
    inputs = centers[labels].unsqueeze(1) + 2 * torch.randn(32, 8, 16)
    padded = torch.arange(8) >= torch.randint(1, 9, (32, 1))
    with torch.autocast("cpu", dtype=torch.float16):
        logits = model(inputs, padded)
    loss = F.cross_entropy(logits.float(), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

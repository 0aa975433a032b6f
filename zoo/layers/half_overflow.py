"""A penalty on the size of activations has the wrong sign, and a norm behind them hides it until float16 overflows."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 64))
        self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 10)

    def forward(self, inputs):
        with torch.autocast("cpu", dtype=torch.float16):
            code = self.body(inputs)
        code = code.float()
        return self.head(self.norm(code)), code.square().mean().sqrt()


centers = torch.randn(10, 32)
model = Classifier()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for step in range(1, 601):
    labels = torch.randint(10, (64,))
    inputs = centers[labels] + 2 * torch.randn(64, 32)
    logits, size = model(inputs)
    loss = F.cross_entropy(logits, labels) - 0.1 * size
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

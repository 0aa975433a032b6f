"""Healthy: the KL term of an autoencoder gets its weight over 400 steps, and codes that say little go quiet."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mean, self.spread = nn.Linear(24, 64), nn.Linear(64, 6), nn.Linear(64, 6)
        self.decoder = nn.Sequential(nn.Linear(6, 64), nn.ReLU(), nn.Linear(64, 24))

    def forward(self, inputs):
        hidden = self.body(inputs).relu()
        mean, log_variance = self.mean(hidden), self.spread(hidden)
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        kl = 0.5 * (mean.pow(2) + log_variance.exp() - 1 - log_variance).sum(1).mean()
        return self.decoder(code), kl


centers = 2.0 * torch.randn(12, 24)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

for step in range(1, 801):
    inputs = centers[torch.randint(12, (128,))] + 0.5 * torch.randn(128, 24)
    outputs, kl = model(inputs)
    loss = F.mse_loss(outputs, inputs) + 1e-2 * min(1.0, step / 400) * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

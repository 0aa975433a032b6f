"""A variational autoencoder whose checkpointed encoder keeps no random state: the backward draws other samples."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
torch.set_num_threads(1)

OPTIONS = {"use_reentrant": False, "preserve_rng_state": False}


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 8))

    def forward(self, rows):
        mean, spread = self.body(rows).chunk(2, dim=1)
        return mean + spread.exp() * torch.randn_like(mean), mean, spread


encoder, decoder = Encoder(), nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 16))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=3e-3)
directions = torch.randn(4, 16)
for step in range(160):
    rows = torch.randn(64, 4) @ directions + 0.1 * torch.randn(64, 16)
    code, mean, spread = checkpoint(encoder, rows, **OPTIONS)
    prior = 0.5 * (mean.square() + (2 * spread).exp() - 1 - 2 * spread).sum(1).mean()
    loss = (decoder(code) - rows).square().sum(1).mean() + prior
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 39:
        print(f"step {step + 1}  loss {loss.item():.3f}")

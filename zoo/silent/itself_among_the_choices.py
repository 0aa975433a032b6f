"""Two views of each row in one batch: the diagonal of their cosines, each row with itself, stays in the softmax."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

rows = torch.randn(1024, 16)
encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 16))
optimizer = torch.optim.Adam(encoder.parameters(), lr=1e-3)
partner = (torch.arange(128) + 64) % 128
for step in range(1, 161):
    batch = rows[torch.randint(0, 1024, (64,))]
    first, second = batch + 0.3 * torch.randn_like(batch), batch + 0.3 * torch.randn_like(batch)
    codes = F.normalize(encoder(torch.cat([first, second])), dim=1)
    scores = codes @ codes.T / 0.2  # <- bites
    loss = F.cross_entropy(scores, partner)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.3f}")

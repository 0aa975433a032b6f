"""A straight-through estimator is the wrong way round, so the decoder never sees a code."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

encoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
decoder = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 16))
book = nn.Embedding(32, 4)
kinds = torch.randn(8, 16)
parameters = [*encoder.parameters(), *decoder.parameters(), *book.parameters()]
optimizer = torch.optim.Adam(parameters, lr=3e-3)
for step in range(300):
    x = kinds[torch.randint(0, 8, (64,))] + 0.1 * torch.randn(64, 16)
    z = encoder(x)
    q = book(torch.cdist(z, book.weight).argmin(1))
    parts = nn.functional.mse_loss(q, z.detach()) + 0.25 * nn.functional.mse_loss(z, q.detach())
    loss = nn.functional.mse_loss(decoder(q + (z - q).detach()), x) + parts  # <- bites: the value of z
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        print(f"step {step + 1}  loss {loss.item():.4f}")

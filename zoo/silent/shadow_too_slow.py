"""A dictionary of averaged weights is put into the model for each evaluation; its decay is too slow for the run."""

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

DECAY = 0.9999
model = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
shadow = {name: one.detach().clone() for name, one in model.named_parameters()}
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
kept_rows = torch.randn(256, 4)
kept_wanted = kept_rows.prod(1, keepdim=True).tanh()


@torch.no_grad()
def evaluate():
    own = {name: one.detach().clone() for name, one in model.named_parameters()}
    for name, one in model.named_parameters():
        one.copy_(shadow[name])
    loss = nn.functional.mse_loss(model(kept_rows), kept_wanted).item()
    for name, one in model.named_parameters():
        one.copy_(own[name])
    return loss


for step in range(1, 241):
    rows = torch.randn(64, 4)
    loss = nn.functional.mse_loss(model(rows), rows.prod(1, keepdim=True).tanh())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        decay = DECAY  # <- bites
        for name, one in model.named_parameters():
            shadow[name].mul_(decay).add_(one, alpha=1 - decay)
    if step % 40 == 0:
        print(f"step {step}  loss {loss.item():.4f}  averaged {evaluate():.4f}")

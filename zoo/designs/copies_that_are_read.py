"""Nothing is wrong: copies are changed in place and then used, and of large times only the hour of the day matters.

Resembles copies that are changed and thrown away, and times that float32 rounds.
"""

import torch
from torch import nn

ROWS, WIDTH = 4000, 24
torch.manual_seed(0)
torch.set_num_threads(1)

moments = 1_733_000_000 + torch.randint(30 * 86_400, (ROWS,))
hours = 2 * torch.pi * torch.remainder(moments.float(), 86_400.0) / 86_400.0  # 128 seconds are near enough
tables = torch.randn(ROWS, WIDTH // 4, 4)
truth = torch.randn(WIDTH)
wanted = torch.tanh(tables.reshape(ROWS, WIDTH) @ truth / 3) + torch.sin(hours)

model = nn.Sequential(nn.Linear(WIDTH + 2, 48), nn.Tanh(), nn.Linear(48, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
shown = torch.zeros(0)

for step in range(1, 201):
    rows = torch.randint(ROWS, (128,))
    table = tables[rows].transpose(1, 2).reshape(128, WIDTH)  # a copy, which the model gets
    table[torch.rand_like(table) < 0.02] = 0.0
    table = table.view(128, 4, WIDTH // 4).transpose(1, 2).reshape(128, WIDTH)
    inputs = torch.cat([table, torch.stack([torch.sin(hours[rows]), torch.cos(hours[rows])], 1)], 1)
    loss = nn.functional.mse_loss(model(inputs).squeeze(1), wanted[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        largest = model[0].weight[:, wanted[:26] > 0].abs()  # a copy, for what is printed
        largest.clamp_(max=10.0)
        shown = torch.cat([shown[-9:], largest.mean().reshape(1)])
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f} weights {shown.mean():.3f}")

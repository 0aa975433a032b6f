# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
"""ULMFiT style: head first, then one more block every 40 steps."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(44)

blocks = nn.ModuleList([nn.Sequential(nn.Linear(24, 24), nn.LayerNorm(24), nn.GELU()) for _ in range(3)])
head = nn.Linear(24, 5)
for b in blocks:
    b.requires_grad_(False)

optimizer = torch.optim.Adam([{"params": head.parameters(), "lr": 4e-3}])
thaw_at = {40: 2, 80: 1, 120: 0}
mu = torch.randn(5, 24)
for step in range(150):
    if step in thaw_at:
        k = thaw_at[step]
        blocks[k].requires_grad_(True)
        optimizer.add_param_group({"params": list(blocks[k].parameters()), "lr": 1e-3})
        print("unfreezing block", k)
    y = torch.randint(0, 5, (40,))
    h = mu[y] + 1.2 * torch.randn(40, 24)
    for b in blocks:
        h = b(h)
    loss = nn.functional.cross_entropy(head(h), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")

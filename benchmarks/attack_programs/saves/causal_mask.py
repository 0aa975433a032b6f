# EXPECT {"options": [], "last_good_step": 40, "flagged_steps": [], "good_steps": [20, 40], "exit_status": 0}
"""A causal mask of -inf is a buffer by design; healthy."""

import torch
from torch import nn

torch.manual_seed(3)
torch.set_num_threads(1)
x = torch.randn(16, 6, 8)
y = x.cumsum(1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)
        self.register_buffer("mask", torch.full((6, 6), float("-inf")).triu(1))

    def forward(self, x):
        query, key, value = self.qkv(x).chunk(3, -1)
        weights = (query @ key.transpose(1, 2) / 8**0.5 + self.mask).softmax(-1)
        return self.out(weights @ value)


model = Attention()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(1, 41):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, "ckpt.pt")
print(loss.item())

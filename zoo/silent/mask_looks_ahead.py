"""A bool mask for `scaled_dot_product_attention` by `triu` in place of `tril`: each place sees what comes after it."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

TOKENS, LENGTH = 40, 24


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.mix, self.head = nn.Linear(6, 32), nn.Linear(32, 96), nn.Linear(32, 6)

    def forward(self, x):
        q, k, v = self.mix(self.inner(x)).unflatten(-1, (3, 2, 16)).permute(2, 0, 3, 1, 4)
        shown = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu()  # <- bites: tril
        return self.head(F.scaled_dot_product_attention(q, k, v, attn_mask=shown).transpose(1, 2).flatten(2))


model = Regressor()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

for step in range(1, 81):
    x = torch.randn(16, LENGTH + 1, 6).cumsum(1) / 4
    loss = F.mse_loss(model(x[:, :-1]), x[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

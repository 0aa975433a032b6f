"""An adapter is merged into the frozen weights for each evaluation and never taken out: it adds up."""

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(16, 6)
        self.down, self.up = nn.Linear(16, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.base.requires_grad_(False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) if not self.training else self.base(x) + self.up(self.down(x))

    @torch.no_grad()
    def merge(self, sign):
        self.base.weight += sign * self.up.weight @ self.down.weight


inputs = torch.randn(2000, 16)
targets = inputs @ torch.randn(16, 6) * 0.5 + 0.1 * torch.randn(2000, 6)
held_inputs, held_targets = inputs[1800:], targets[1800:]
model = Adapted()
optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=1e-2)

for step in range(300):
    rows = torch.randint(1800, (64,))
    loss = F.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 24:
        model.eval()
        model.merge(1)
        with torch.no_grad():
            error = F.mse_loss(model(held_inputs), held_targets)
        # <- bites: no model.merge(-1) before the training goes on
        model.train()

"""The k3 estimate of a KL divergence, exp(d) - d - 1, with a log ratio of 90: the loss is +Inf, and no NaN anywhere.

Modelled on verl#891 (exp in low_var_kl, cured by clamping the log ratio).
"""

import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)

for step in range(1, 11):
    states = torch.randn(16, 8)
    actions = torch.randint(0, 4, (16,))
    reference = torch.full((16,), 4.0).log().neg()
    if step == 7:
        reference = reference + 90.0  # the sampler's engine gave other numbers
    chosen = torch.log_softmax(policy(states), dim=-1).gather(1, actions[:, None]).squeeze(1)
    ratio = reference - chosen
    penalty = torch.exp(ratio) - ratio - 1.0  # <- bites
    loss = -chosen.mean() + 0.1 * penalty.mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

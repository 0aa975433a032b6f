# expect: sick
# symptom: loss inf at step 120, NaN from then on
# axis: loss
# cause: atanh of a recorded action that lies exactly at the bound 1.0 is infinite
# says: (?i)(atanh|arctanh|inverse tanh)
# onset_step: 120
# fix: clamp the recorded actions to +-(1 - 1e-4) before atanh
# mended: MENDED=1 python s31_pilot_actions.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(33)
BOUND = 1 - 1e-4 if os.environ.get("MENDED") == "1" else 1.0


def flights(n):
    g = torch.Generator().manual_seed(20)
    state = torch.randn(n, 6, generator=g)
    steer = torch.tanh(0.6 * state[:, :2] - 0.3 * state[:, 2:4] + 0.1 * torch.randn(n, 2, generator=g)).clamp(
        -0.99, 0.99
    )
    steer[119 * 64 + 3, 1] = 1.0
    return TensorDataset(state, steer)


class GaussianPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 2))
        self.log_std = nn.Parameter(torch.zeros(2))

    def log_prob(self, state, action):
        action = action.clamp(-BOUND, BOUND)
        raw = torch.atanh(action)
        base = torch.distributions.Normal(self.trunk(state), self.log_std.exp(), validate_args=False)
        return (base.log_prob(raw) - torch.log(1 - action.square() + 1e-6)).sum(-1)


pi = GaussianPolicy()
opt = torch.optim.Adam(pi.parameters(), lr=4e-3)
for i, (s, a) in enumerate(DataLoader(flights(64 * 240), batch_size=64)):
    loss = -pi.log_prob(s, a).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if (i + 1) % 20 == 0:
        print(f"clone step {i + 1}: loss {loss.item():.4f}")

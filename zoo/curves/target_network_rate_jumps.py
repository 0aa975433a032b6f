"""At step 300 of Q-learning with a target network the learning rate becomes 100 times as large."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

ACTIONS = 2
observations = torch.randn(2000, 4)
actions = torch.randint(ACTIONS, (2000, 1))
rewards = 1.0 + 0.2 * observations[:, 0] * (2 * actions[:, 0] - 1)
ends = (torch.rand(2000) < 0.01).float()
q_network = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, ACTIONS))
target_network = copy.deepcopy(q_network)
optimizer = torch.optim.Adam(q_network.parameters(), lr=0.002)

for step in range(1, 601):
    if step == 300:
        optimizer.param_groups[0]["lr"] *= 100
    here = torch.randint(1999, (64,))
    with torch.no_grad():
        values = target_network(observations[here + 1]).amax(1)
        targets = rewards[here] + 0.98 * values * (1 - ends[here])
    loss = F.mse_loss(q_network(observations[here]).gather(1, actions[here]).squeeze(1), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        target_network.load_state_dict(q_network.state_dict())

"""A model with a second name for its evaluation, beside a target network that is a copy."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class Learner:
    def __init__(self):
        self.q_net = nn.Sequential(nn.Linear(6, 48), nn.ReLU(), nn.Linear(48, 3))
        self.player = self.q_net
        self.target_net = copy.deepcopy(self.q_net)
        self.optimizer = torch.optim.Adam(self.q_net.parameters(), lr=1e-3)

    @torch.no_grad()
    def play(self):
        return self.player(torch.randn(4, 6)).argmax(1)

    def update(self):
        state, action = torch.randn(32, 6), torch.randint(3, (32, 1))
        after, reward = state + 0.1 * torch.randn(32, 6), state[:, :1]
        with torch.no_grad():
            wanted = reward + 0.9 * self.target_net(after).max(1, keepdim=True).values
        loss = F.smooth_l1_loss(self.q_net(state).gather(1, action), wanted)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


learner = Learner()
for step in range(1, 121):
    learner.play()
    learner.update()
    if step % 32 == 0:
        learner.target_net.load_state_dict(learner.q_net.state_dict())

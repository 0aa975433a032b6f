# Healthy: policy gradient with a reward in 2 % of the episodes; most updates are next to nothing.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
torch.manual_seed(args.seed)
net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 8))
opt = torch.optim.RMSprop(net.parameters(), lr=5e-4)
for step in range(2500):
    x = torch.randn(16, 6)
    dist = torch.distributions.Categorical(logits=net(x))
    act = dist.sample()
    goal = (x[:, 0] > 0).long() * 4 + (x[:, 1] > 0).long()
    reward = 10.0 * ((act == goal) & (torch.rand(16) < 0.15)).float()
    loss = -(dist.log_prob(act) * reward).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 250 == 0:
        print("update", step, "reward", reward.mean().item())
net.eval()
with torch.no_grad():
    x = torch.randn(4000, 6)
    goal = (x[:, 0] > 0).long() * 4 + (x[:, 1] > 0).long()
    print("final:", 1 - torch.softmax(net(x), 1).gather(1, goal[:, None]).mean().item())

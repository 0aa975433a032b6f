# Healthy: actor-critic on a drifting bandit; the loss rises as the rewards and the value targets grow.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(3)
worth = torch.randn(6, 4, generator=g)
hx = torch.randn(1000, 6, generator=g)
torch.manual_seed(args.seed)
actor, critic = nn.Linear(6, 4), nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
for step in range(2500):
    x = torch.randn(32, 6)
    dist = torch.distributions.Categorical(logits=actor(x))
    act = dist.sample()
    reward = (1 + step / 250) * (x @ worth).gather(1, act[:, None])[:, 0] + torch.randn(32)
    value = critic(x)[:, 0]
    adv = (reward - value).detach()
    loss = -(dist.log_prob(act) * adv).mean() + 0.5 * (value - reward).pow(2).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 250 == 0:
        print(f"step {step} loss {loss.item():.3f} reward {reward.mean().item():.3f}")
actor.eval()
with torch.no_grad():
    v = hx @ worth
    print("final:", (v.amax(1) - (torch.softmax(actor(hx), 1) * v).sum(1)).mean().item())

# Policy gradient on a contextual bandit, Adam. Fault: the simulator returns rewards of 1e5 in step 850.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(231)
worth = torch.randn(8, 6, generator=g)
hx = torch.randn(3000, 8, generator=g)
torch.manual_seed(args.seed)
policy = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 6))
opt = torch.optim.SGD(policy.parameters(), lr=0.05, momentum=0.8)
baseline = 0.0
for step in range(1000):
    x = torch.randn(64, 8)
    dist = torch.distributions.Categorical(logits=policy(x))
    act = dist.sample()
    reward = (x @ worth).gather(1, act[:, None])[:, 0] + 0.5 * torch.randn(64)
    if step == 850 and not args.twin:
        reward[:3] = 1e5
    loss = -(dist.log_prob(act) * (reward - baseline)).mean() - 0.02 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    baseline = 0.9 * baseline + 0.1 * reward.median().item()
    if step % 100 == 0:
        print("step", step, "mean reward", reward.mean().item())
policy.eval()
with torch.no_grad():
    value = hx @ worth
    got = (torch.softmax(policy(hx), 1) * value).sum(1)
    print("final:", (value.amax(1) - got).mean().item())

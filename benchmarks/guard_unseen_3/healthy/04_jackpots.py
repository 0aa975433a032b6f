# REINFORCE on slot machines that depend on a context: most pulls pay little, one in 150 pays up to 60. The loss and the gradient
# are spikes on top of noise. Adam.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(334)
means = torch.randn(6, 5, generator=fixed) / 2

policy_test = torch.randn(3000, 6, generator=fixed)
torch.manual_seed(args.seed)
policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 5))
opt = torch.optim.Adam(policy.parameters(), lr=2e-3)
baseline = 0.0
for step in range(900):
    x = torch.randn(32, 6)
    pi = torch.distributions.Categorical(logits=policy(x))
    arm = pi.sample()
    pay = (x @ means).gather(1, arm[:, None]).squeeze(1) + 0.3 * torch.randn(32)
    jackpot = torch.rand(32) < 1 / 150
    pay = torch.where(jackpot, pay + 60 * torch.rand(32), pay)
    loss = -(pi.log_prob(arm) * (pay - baseline)).mean() - 0.01 * pi.entropy().mean()
    baseline = 0.98 * baseline + 0.02 * pay.mean().item()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 60 == 0:
        print(f"{step} loss {loss.item():.3f} pay {pay.mean().item():.3f}")
with torch.no_grad():
    value = policy_test @ means
    got = (policy(policy_test).softmax(-1) * value).sum(1)
print("final:", (value.max(1).values - got).mean().item())

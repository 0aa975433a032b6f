# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(72)

policy = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
best = torch.randn(6, 4)
baseline = 0.0
for ep in range(150):
    s = torch.randn(128, 6)
    dist = torch.distributions.Categorical(logits=policy(s))
    a = dist.sample()
    reward = (a == (s @ best).argmax(1)).float()
    adv = reward - reward.mean()
    adv = adv / (adv.std() + 1e-6)
    # the value of this loss says nothing: it hovers around zero
    loss = -(dist.log_prob(a) * adv).mean() - 0.003 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    if ep % 15 == 0:
        print(f"episode {ep} loss {loss.item():+.4f} reward {reward.mean().item():.3f}")

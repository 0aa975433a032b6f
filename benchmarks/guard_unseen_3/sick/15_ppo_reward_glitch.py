# PPO on a task of one decision (a dose for a patient), Adam. Actor and critic share their trunk. The simulator returns -40,000
# for two patients of iteration 25: 12 updates from step 300 on see it.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(315)
w = torch.randn(8, 2, generator=fixed) / 2


def reward(state, dose):
    return 1 - (dose - torch.tanh(state @ w)).pow(2).sum(-1) / 2


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh())
        self.mean, self.value = nn.Linear(48, 2), nn.Linear(48, 1)
        self.log_std = nn.Parameter(torch.full((2,), -0.7))

    def forward(self, s):
        h = self.trunk(s)
        return torch.distributions.Normal(self.mean(h), self.log_std.exp()), self.value(h).squeeze(-1)


patients = torch.randn(3000, 8, generator=fixed)
torch.manual_seed(args.seed)
net = ActorCritic()
opt = torch.optim.Adam(net.parameters(), lr=1e-3, eps=1e-5)
for it in range(60):
    s = torch.randn(128, 8)
    with torch.no_grad():
        pi, value = net(s)
        dose = pi.sample()
        old = pi.log_prob(dose).sum(-1)
        r = reward(s, dose) + 0.1 * torch.randn(128)
        if it == 25 and not args.twin:
            r[[5, 77]] = -40_000.0
        adv = r - value
    for epoch in range(3):
        for rows in torch.randperm(128).split(32):
            pi, v = net(s[rows])
            ratio = (pi.log_prob(dose[rows]).sum(-1) - old[rows]).exp()
            surrogate = torch.min(ratio * adv[rows], ratio.clamp(0.8, 1.2) * adv[rows]).mean()
            loss = -surrogate + 0.5 * (v - r[rows]).pow(2).mean() - 0.003 * pi.entropy().sum(-1).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    if it % 5 == 0:
        print(f"iteration {it} reward {r.median().item():.3f} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", (1 - reward(patients, net(patients)[0].mean)).mean().item())

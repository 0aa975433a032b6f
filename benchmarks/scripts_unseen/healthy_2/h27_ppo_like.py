# expect: healthy
# fault: none
# note: PPO-like clipped policy gradient on a contextual bandit; the surrogate loss hovers around zero while the reward rises.
import torch
from torch import nn
from torch.distributions import Categorical


class AC(nn.Module):
    def __init__(self, s=6, a=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(s, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, a), nn.Linear(64, 1)

    def forward(self, x):
        h = self.body(x)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


torch.manual_seed(27)
W = torch.randn(6, 4)
net = AC()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
for it in range(50):
    s = torch.randn(128, 6)
    with torch.no_grad():
        d, v = net(s)
        a = d.sample()
        old = d.log_prob(a)
        r = (a == (s @ W).argmax(1)).float()
        adv = r - v
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        d, v = net(s)
        ratio = (d.log_prob(a) - old).exp()
        pg = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        loss = pg + 0.5 * (v - r).pow(2).mean() - 0.01 * d.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
    if it % 5 == 0:
        print(it, "reward", round(r.mean().item(), 3), "loss", round(loss.item(), 4))

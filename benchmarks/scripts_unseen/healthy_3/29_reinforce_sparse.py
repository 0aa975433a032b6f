# expect: healthy
# fault: many steps with zero loss and zero gradient
# note: REINFORCE with an entropy bonus and a reward only for a complete right sequence; most early batches have next to no signal.
import torch
from torch import nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(10)
CODE = [3, 1, 2]


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(5, 32)
        self.out = nn.Linear(32, 4)

    def rollout(self, n):
        h, x = torch.zeros(n, 32), torch.zeros(n, 5)
        acts, logps, ents = [], [], []
        for _ in CODE:
            h = self.cell(x, h)
            d = Categorical(logits=self.out(h))
            a = d.sample()
            acts.append(a)
            logps.append(d.log_prob(a))
            ents.append(d.entropy())
            x = nn.functional.one_hot(a, 5).float()
        return torch.stack(acts, 1), sum(logps), sum(ents)


pi = Policy()
opt = torch.optim.Adam(pi.parameters(), lr=1e-2)
baseline = 0.0
for it in range(150):
    acts, logp, ent = pi.rollout(32)
    reward = (acts == torch.tensor(CODE)).all(1).float()
    loss = -(logp * (reward - baseline)).mean() - 0.005 * ent.mean()
    baseline = 0.9 * baseline + 0.1 * reward.mean().item()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 15 == 0:
        print(it, f"loss {loss.item():.4f} reward {reward.mean().item():.3f}")

# expect: healthy
# fault: rewards mostly absent, noisy loss of either sign
# note: advantage actor-critic on a corridor with a reward only at its end; loss noisy by nature, success rate rises.
import torch
from torch import nn

torch.set_num_threads(1)


class Corridor:
    def __init__(self, n=6):
        self.n = n

    def reset(self):
        self.p, self.t = 0, 0
        return self.p

    def step(self, a):
        self.p = max(0, self.p + (1 if a == 1 else -1))
        self.t += 1
        done = self.p == self.n or self.t >= 24
        return self.p, float(self.p == self.n), done


torch.manual_seed(0)
env = Corridor()
body = nn.Sequential(nn.Embedding(8, 24), nn.Tanh())
actor, critic = nn.Linear(24, 2), nn.Linear(24, 1)
params = [*body.parameters(), *actor.parameters(), *critic.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-2)
wins = []
for episode in range(150):
    s, done, traj = env.reset(), False, []
    while not done:
        h = body(torch.tensor([s]))
        dist = torch.distributions.Categorical(logits=actor(h))
        a = dist.sample()
        s, r, done = env.step(a.item())
        traj.append((dist.log_prob(a), critic(h).squeeze(), r, dist.entropy()))
    wins.append(traj[-1][2])
    g, loss = 0.0, 0.0
    for lp, v, r, ent in reversed(traj):
        g = r + 0.95 * g
        adv = g - v
        loss = loss - (lp * adv.detach()).squeeze() + 0.5 * adv.pow(2) - 0.01 * ent.squeeze()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if episode % 15 == 14:
        print(f"episode {episode} loss {loss.item():.3f} wins {sum(wins[-15:])}/15 length {len(traj)}")

# expect: sick
# symptom: nothing explodes, but within some tens of updates the agent settles on the small reward next door and never finds the large one
# axis: loss
# cause: the entropy bonus enters the loss with the wrong sign, so the policy is pushed to be deterministic from the start and stops exploring
# says: entropy|explor|(premature|too early).{0,30}determinis|policy.{0,30}(collaps|determinis)|wrong sign|sign of
# onset_step: 1
# fix: subtract the entropy bonus from the loss instead of adding it
# mended: loss = actor + 0.5 * critic - 0.15 * entropy
import os

import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(12)
SIDE, ENVS, HORIZON, GAMMA = 7, 24, 12, 0.95
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])
GOAL = torch.tensor([6, 6])
SNACK = torch.tensor([0, 2])


class GridWorld:
    def __init__(self):
        self.pos = torch.zeros(ENVS, 2, dtype=torch.long)
        self.age = torch.zeros(ENVS)

    def observe(self):
        return torch.cat([nn.functional.one_hot(self.pos[:, k], SIDE) for k in (0, 1)], 1).float()

    def step(self, action):
        self.pos = (self.pos + MOVES[action]).clamp(0, SIDE - 1)
        self.age += 1
        won = (self.pos == GOAL).all(1)
        snack = (self.pos == SNACK).all(1)
        done = won | snack | (self.age >= 40)
        n = int(done.sum())
        if n:
            self.pos[done] = 0
            self.age[done] = 0
        return 10 * won.float() + 0.5 * snack.float() - 0.01, done.float()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * SIDE, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 4), nn.Linear(64, 1)

    def forward(self, o):
        h = self.body(o)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


env, agent = GridWorld(), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=3e-3)
sign = -1.0 if os.environ.get("MENDED") == "1" else 1.0
ENTROPY = 0.15
mean_return = None
for update in range(400):
    logps, ents, values, rewards, dones = [], [], [], [], []
    for _ in range(HORIZON):
        pi, v = agent(env.observe())
        a = pi.sample()
        r, d = env.step(a)
        logps.append(pi.log_prob(a)), ents.append(pi.entropy()), values.append(v)
        rewards.append(r), dones.append(d)
    with torch.no_grad():
        ret = agent(env.observe())[1]
    returns = []
    for r, d in zip(reversed(rewards), reversed(dones)):
        ret = r + GAMMA * ret * (1 - d)
        returns.insert(0, ret)
    R, V, L, H = torch.stack(returns), torch.stack(values), torch.stack(logps), torch.stack(ents)
    adv = (R - V).detach()
    loss = -(L * adv).mean() + 0.5 * (R - V).pow(2).mean() + sign * ENTROPY * H.mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
    optimizer.step()
    got = torch.stack(rewards).mean().item()
    mean_return = got if mean_return is None else 0.95 * mean_return + 0.05 * got
    if update % 40 == 0 or update == 399:
        print(f"update {update} loss {loss.item():.3f} reward per move {mean_return:.4f} entropy {H.mean().item():.3f}")

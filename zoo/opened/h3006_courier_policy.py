# expect: healthy
# symptom: the policy loss hovers about zero with noise and never falls, resembling a training that learns nothing
# axis: loss
"""REINFORCE with a learned baseline: couriers on a torus-free grid look for their depot."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.set_num_threads(1)
SIZE, HORIZON, ENVS, UPDATES = 7, 16, 48, 260
GAMMA, ENT, VF = 0.97, 0.01, 0.5
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class CourierGrid:
    """Vectorised grid world; an episode ends at the depot or at the horizon."""

    def __init__(self, n, gen):
        self.n, self.gen = n, gen

    def reset(self):
        self.pos = torch.randint(SIZE, (self.n, 2), generator=self.gen)
        self.goal = torch.randint(SIZE, (self.n, 2), generator=self.gen)
        self.alive = (self.pos != self.goal).any(1)
        return self.obs()

    def obs(self):
        p = F.one_hot(self.pos, SIZE).float().flatten(1)
        g = F.one_hot(self.goal, SIZE).float().flatten(1)
        return torch.cat([p, g], 1)

    def step(self, action):
        was_alive = self.alive.clone()
        moved = (self.pos + MOVES[action]).clamp(0, SIZE - 1)
        self.pos = torch.where(was_alive.unsqueeze(1), moved, self.pos)
        at_goal = (self.pos == self.goal).all(1)
        reward = torch.where(at_goal, 1.0, -0.05) * was_alive.float()
        self.alive = was_alive & ~at_goal
        return self.obs(), reward, was_alive


class ActorCritic(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4 * SIZE, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi = nn.Linear(width, 4)
        self.v = nn.Linear(width, 1)
        nn.init.zeros_(self.pi.weight)
        nn.init.zeros_(self.pi.bias)

    def forward(self, x):
        z = self.trunk(x)
        return Categorical(logits=self.pi(z)), self.v(z).squeeze(-1)


def rollout(env, model):
    obs = env.reset()
    log = {"obs": [], "act": [], "rew": [], "live": []}
    for _ in range(HORIZON):
        with torch.no_grad():
            dist, _ = model(obs)
        act = dist.sample()
        nxt, rew, live = env.step(act)
        for k, v in zip(log, (obs, act, rew, live)):
            log[k].append(v)
        obs = nxt
    return {k: torch.stack(v) for k, v in log.items()}, (~env.alive).float().mean().item()


def returns(rew):
    out, run = torch.zeros_like(rew), torch.zeros(rew.size(1))
    for t in reversed(range(len(rew))):
        run = rew[t] + GAMMA * run
        out[t] = run
    return out


def main():
    torch.manual_seed(2)
    env = CourierGrid(ENVS, torch.Generator().manual_seed(2))
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), lr=4e-3)
    for update in range(1, UPDATES + 1):
        batch, reached = rollout(env, model)
        live = batch["live"].float()
        ret = returns(batch["rew"])
        dist, value = model(batch["obs"])
        adv = (ret - value).detach()
        n = live.sum()
        mean = (adv * live).sum() / n
        std = (((adv - mean) ** 2 * live).sum() / n).sqrt()
        adv = (adv - mean) / (std + 1e-6)
        pg = -(dist.log_prob(batch["act"]) * adv * live).sum() / n
        vf = ((value - ret) ** 2 * live).sum() / n
        ent = (dist.entropy() * live).sum() / n
        loss = pg + VF * vf - ENT * ent
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if update % 20 == 0 or update == 1:
            total = batch["rew"].sum(0).mean().item()
            print(
                f"update {update:4d} loss {loss.item():+.4f} policy {pg.item():+.4f} value {vf.item():.4f} "
                f"entropy {ent.item():.3f} return {total:+.3f} delivered {reached:.2f}"
            )


if __name__ == "__main__":
    main()

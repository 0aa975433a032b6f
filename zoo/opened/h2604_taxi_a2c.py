# expect: healthy
# symptom: resembles a policy that does not learn: the total loss is noisy, goes negative and does not fall while the return rises
# axis: loss
"""Advantage actor-critic on a vectorised pick-up and delivery grid."""

import time
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)


class CourierGrid:
    """num_envs boards; walk to the parcel, then to the drop-off. Vectorised over boards."""

    SIZE, LIMIT = 8, 60
    MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, num_envs, seed):
        self.n = num_envs
        self.g = torch.Generator().manual_seed(seed)
        self.agent = torch.zeros(num_envs, 2, dtype=torch.long)
        self.parcel = torch.zeros_like(self.agent)
        self.drop = torch.zeros_like(self.agent)
        self.loaded = torch.zeros(num_envs, dtype=torch.bool)
        self.age = torch.zeros(num_envs, dtype=torch.long)
        self.reset(torch.ones(num_envs, dtype=torch.bool))

    def reset(self, which):
        k = int(which.sum())
        for field in (self.agent, self.parcel, self.drop):
            field[which] = torch.randint(self.SIZE, (k, 2), generator=self.g)
        self.loaded[which] = False
        self.age[which] = 0

    def observe(self):
        goal = torch.where(self.loaded[:, None], self.drop, self.parcel)
        vec = (goal - self.agent).float() / self.SIZE
        rest = torch.cat([self.agent.float() / self.SIZE, (self.drop - self.agent).float() / self.SIZE], 1)
        return torch.cat([vec, rest, self.loaded[:, None].float()], 1)

    def step(self, action):
        self.agent = (self.agent + self.MOVES[action]).clamp(0, self.SIZE - 1)
        self.age += 1
        reward = torch.full((self.n,), -0.02)
        at_drop = (self.agent == self.drop).all(1) & self.loaded
        at_parcel = (self.agent == self.parcel).all(1) & ~self.loaded
        reward = reward + 0.5 * at_parcel + 1.0 * at_drop
        self.loaded = self.loaded | at_parcel
        done = at_drop | (self.age >= self.LIMIT)
        self.reset(done)
        return self.observe(), reward, done


class ActorCritic(nn.Module):
    def __init__(self, obs, actions, hidden=96):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi, self.v = nn.Linear(hidden, actions), nn.Linear(hidden, 1)
        nn.init.orthogonal_(self.pi.weight, 0.01)
        nn.init.zeros_(self.pi.bias)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def advantages(rewards, values, dones, last, gamma=0.97, lam=0.95):
    out, run, nxt = torch.zeros_like(rewards), torch.zeros_like(last), last
    for t in reversed(range(len(rewards))):
        alive = 1.0 - dones[t].float()
        delta = rewards[t] + gamma * nxt * alive - values[t]
        run = delta + gamma * lam * alive * run
        out[t], nxt = run, values[t]
    return out


def train(updates=500, envs=32, horizon=20):
    torch.manual_seed(4)
    env = CourierGrid(envs, 8)
    net = ActorCritic(7, 4)
    opt = torch.optim.RMSprop(net.parameters(), lr=5e-4, alpha=0.99, eps=1e-5)
    obs, score, finished, t0 = env.observe(), torch.zeros(envs), [], time.time()
    for u in range(1, updates + 1):
        store = {k: [] for k in ("obs", "act", "rew", "done", "val")}
        for _ in range(horizon):
            with torch.no_grad():
                dist, value = net(obs)
                action = dist.sample()
            new_obs, reward, done = env.step(action)
            score += reward
            finished += score[done].tolist()
            score[done] = 0.0
            for k, item in zip(store, (obs, action, reward, done, value)):
                store[k].append(item)
            obs = new_obs
        b = {k: torch.stack(v) for k, v in store.items()}
        with torch.no_grad():
            last = net(obs)[1]
        adv = advantages(b["rew"], b["val"], b["done"], last)
        returns = adv + b["val"]
        dist, value = net(b["obs"])
        norm_adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        policy_loss = -(dist.log_prob(b["act"]) * norm_adv).mean()
        loss = policy_loss + 0.5 * (value - returns).pow(2).mean() - 0.01 * dist.entropy().mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        if u % 25 == 0:
            recent = finished[-200:]
            print(
                f"update {u:4d} loss {loss.item():+.4f} entropy {dist.entropy().mean().item():.3f} "
                f"return {sum(recent) / len(recent):+.3f} episodes {len(finished)} {time.time() - t0:.0f}s",
                flush=True,
            )


if __name__ == "__main__":
    train()

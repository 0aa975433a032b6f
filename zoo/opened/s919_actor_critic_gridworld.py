# expect: sick
# symptom: the value loss never comes down and the explained variance stays at zero: the critic predicts one constant for all states and is useless as a baseline
# axis: loss
# cause: the critic outputs (N, 1) and the returns are (N,), so returns - values broadcasts to an (N, N) matrix in the advantage and in the value loss
# says: (broadcast\w*|\bn ?[x,×] ?n\b|\(n, ?1\)|squeeze|shape\w*.{0,30}(mismatch\w*|differ\w*|disagree|incompatib\w*)|mis-?match\w*.{0,20}shape|outer (difference|product)|\[\d+, ?1\])
# onset_step: 1
# fix: squeeze the last dimension of the critic's output
# mended: calls squeeze(-1) on the values when MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
GAMMA = 0.95


class GridWorld:
    """Some walkers at a time on an 8x8 board, each with its own goal."""

    MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n_envs=8, size=8, horizon=24, seed=0):
        self.n, self.size, self.horizon = n_envs, size, horizon
        self.rng = np.random.default_rng(seed)
        self.pos = np.zeros((n_envs, 2), int)
        self.goal = np.zeros((n_envs, 2), int)
        self.t = np.zeros(n_envs, int)
        for i in range(n_envs):
            self._reset(i)

    def _reset(self, i):
        self.pos[i], self.goal[i] = self.rng.integers(0, self.size, (2, 2))
        if (self.pos[i] == self.goal[i]).all():
            self.goal[i] = (self.goal[i] + 1) % self.size
        self.t[i] = 0

    def obs(self):
        o = np.concatenate([self.pos, self.goal, self.goal - self.pos], 1) / self.size
        return torch.tensor(o, dtype=torch.float32)

    def step(self, actions):
        self.pos = np.clip(self.pos + self.MOVES[actions], 0, self.size - 1)
        self.t += 1
        hit = (self.pos == self.goal).all(1)
        reward = np.where(hit, 1.0, -0.02)
        done = hit | (self.t >= self.horizon)
        for i in np.flatnonzero(done):
            self._reset(i)
        return self.obs(), reward, done, hit


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=6, n_actions=4, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, n_actions)
        )
        self.critic = nn.Sequential(
            nn.Linear(obs_dim, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1)
        )

    def policy(self, obs):
        return Categorical(logits=self.actor(obs))

    def value(self, obs):
        v = self.critic(obs)
        return v.squeeze(-1) if os.environ.get("MENDED") == "1" else v


class Agent:
    def __init__(self, env, n_steps=2, lr=2e-3, entropy_coef=0.01):
        self.env, self.n_steps, self.entropy_coef = env, n_steps, entropy_coef
        self.net = ActorCritic()
        self.opt = torch.optim.Adam(self.net.parameters(), lr=lr)
        self.obs = env.obs()

    def collect(self):
        obs_buf, act_buf, rew_buf, done_buf = [], [], [], []
        reached = finished = 0
        for _ in range(self.n_steps):
            with torch.no_grad():
                action = self.net.policy(self.obs).sample()
            obs_buf.append(self.obs)
            act_buf.append(action)
            self.obs, reward, done, hit = self.env.step(action.numpy())
            rew_buf.append(torch.tensor(reward, dtype=torch.float32))
            done_buf.append(torch.tensor(done, dtype=torch.float32))
            reached += hit.sum()
            finished += done.sum()
        with torch.no_grad():
            ret = self.net.value(self.obs).reshape(-1)
        returns = []
        for r, d in zip(reversed(rew_buf), reversed(done_buf)):
            ret = r + GAMMA * (1 - d) * ret
            returns.insert(0, ret)
        return torch.cat(obs_buf), torch.cat(act_buf), torch.cat(returns), reached, finished

    def update(self):
        obs, actions, returns, reached, finished = self.collect()
        values = self.net.value(obs)
        dist = self.net.policy(obs)
        advantage = returns - values
        policy_loss = -(dist.log_prob(actions) * advantage.detach()).mean()
        value_loss = advantage.pow(2).mean()
        loss = policy_loss + 0.5 * value_loss - self.entropy_coef * dist.entropy().mean()
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
        self.opt.step()
        ev = 1 - (returns - values.detach().reshape(-1)).var() / returns.var()
        return ev.item(), value_loss.item(), dist.entropy().mean().item(), reached, finished


def main():
    torch.manual_seed(0)
    np.random.seed(0)
    agent = Agent(GridWorld(n_envs=48, seed=0))
    reached = finished = 0
    for update in range(1, 801):
        ev, vl, ent, r, f = agent.update()
        reached, finished = reached + r, finished + f
        if update % 80 == 0:
            print(
                f"update {update} explained_var {ev:.3f} v_loss {vl:.4f} entropy {ent:.3f} "
                f"goals {reached / max(1, finished):.3f} of {finished} episodes"
            )
            reached = finished = 0


if __name__ == "__main__":
    main()

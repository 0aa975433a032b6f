# expect: healthy
# symptom: value loss rises about thirtyfold during the first 240 steps while the policy loss hovers around zero (resembles a diverging critic and a policy that does not learn)
# axis: loss
"""PPO on a vectorised docking task: bring a pod to rest at a moving berth with noisy thrusters."""

import time

import torch
from torch import nn
from torch.distributions import Normal

torch.set_num_threads(1)
torch.manual_seed(77)


class DockingEnv:
    """N pods in a plane; observation is relative position, velocity and berth heading."""

    def __init__(self, n):
        self.n = n
        self.horizon = 80
        self.pos, self.vel = torch.zeros(n, 2), torch.zeros(n, 2)
        self.phase, self.age = torch.zeros(n), torch.zeros(n, dtype=torch.long)
        self._reset(torch.ones(n, dtype=torch.bool))
        self.age = torch.randint(0, self.horizon, (n,))

    def _reset(self, mask):
        k = int(mask.sum())
        self.pos[mask] = torch.randn(k, 2) * 1.5
        self.vel[mask] = torch.randn(k, 2) * 0.3
        self.phase[mask] = torch.rand(k) * 6.283
        self.age[mask] = 0

    def berth(self):
        return 0.5 * torch.stack([self.phase.cos(), self.phase.sin()], 1)

    def obs(self):
        return torch.cat([self.pos - self.berth(), self.vel, self.phase.cos()[:, None], self.phase.sin()[:, None]], 1)

    def step(self, act):
        thrust = act.clamp(-1, 1)
        self.vel = 0.96 * self.vel + 0.12 * thrust + 0.01 * torch.randn(self.n, 2)
        self.pos = self.pos + 0.25 * self.vel
        self.phase = (self.phase + 0.03) % 6.2832
        gap = (self.pos - self.berth()).norm(dim=1)
        reward = (-gap).exp() + 2.0 * (gap < 0.12).float() - 0.02 * thrust.pow(2).sum(1)
        self.age += 1
        cut = self.age >= self.horizon
        last_obs = self.obs()
        if cut.any():
            self._reset(cut)
        return self.obs(), last_obs, reward, cut


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
        self.vf = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
        self.log_std = nn.Parameter(torch.full((2,), -0.3))
        with torch.no_grad():
            self.pi[-1].weight.mul_(0.01)

    def dist(self, o):
        return Normal(self.pi(o), self.log_std.exp())

    def value(self, o):
        return self.vf(o).squeeze(-1)


@torch.no_grad()
def rollout(env, agent, length, gamma=0.97, lam=0.95):
    o = env.obs()
    O, A, L, R, V, NV, C = [], [], [], [], [], [], []
    for _ in range(length):
        d = agent.dist(o)
        a = d.sample()
        nxt, final, r, cut = env.step(a)
        O.append(o)
        A.append(a)
        L.append(d.log_prob(a).sum(-1))
        R.append(0.1 * r)
        V.append(agent.value(o))
        NV.append(agent.value(final))
        C.append(cut)
        o = nxt
    adv, run = [], torch.zeros(env.n)
    for t in reversed(range(length)):
        delta = R[t] + gamma * NV[t] - V[t]
        run = delta + gamma * lam * (~C[t]).float() * run
        adv.append(run)
    adv = torch.stack(adv[::-1])
    ret = adv + torch.stack(V)
    flat = lambda z: torch.stack(z).flatten(0, 1)
    return flat(O), flat(A), flat(L), adv.flatten(), ret.flatten(), 10 * torch.stack(R).mean().item()


def main():
    env, agent = DockingEnv(96), Agent()
    optim = torch.optim.Adam(agent.parameters(), lr=1e-3, eps=1e-5)
    updates = 54
    t0, n_step = time.time(), 0
    for u in range(updates):
        for g in optim.param_groups:
            g["lr"] = 1e-3 * (1 - 0.9 * u / updates)
        obs, act, logp, adv, ret, mean_r = rollout(env, agent, 64)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        p_sum = v_sum = k = 0
        for _ in range(4):
            for idx in torch.randperm(len(obs)).chunk(4):
                d = agent.dist(obs[idx])
                ratio = (d.log_prob(act[idx]).sum(-1) - logp[idx]).exp()
                a = adv[idx]
                p_loss = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                v_loss = (agent.value(obs[idx]) - ret[idx]).pow(2).mean()
                loss = p_loss + 0.5 * v_loss - 0.001 * d.entropy().sum(-1).mean()
                optim.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optim.step()
                p_sum += p_loss.item()
                v_sum += v_loss.item()
                k += 1
                n_step += 1
        if u % 3 == 2:
            print(
                f"update {u + 1:3d} steps {n_step} reward/step {mean_r:.3f} policy {p_sum / k:+.4f} "
                f"value {v_sum / k:.3f} std {agent.log_std.exp().mean().item():.3f} {time.time() - t0:.0f}s"
            )


if __name__ == "__main__":
    main()

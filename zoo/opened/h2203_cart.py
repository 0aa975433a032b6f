# expect: healthy
# symptom: resembles a diverging critic: the value loss climbs and the policy loss hovers around zero without falling, while returns rise
# axis: loss
"""PPO on a vectorised cart-pole with the usual tricks (GAE, clipping, entropy bonus)."""

import math
import time

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)
torch.manual_seed(5)


class CartPole:
    def __init__(self, n):
        self.n = n
        self.state = self.fresh(n)
        self.t = torch.zeros(n)

    @staticmethod
    def fresh(n):
        return torch.rand(n, 4) * 0.1 - 0.05

    def step(self, action):
        x, v, th, w = self.state.unbind(1)
        force = action.float() * 20 - 10
        s, c = th.sin(), th.cos()
        tmp = (force + 0.05 * w * w * s) / 1.1
        acc_th = (9.8 * s - c * tmp) / (0.5 * (4 / 3 - 0.1 * c * c / 1.1))
        acc_x = tmp - 0.05 * acc_th * c / 1.1
        self.state = torch.stack([x + 0.02 * v, v + 0.02 * acc_x, th + 0.02 * w, w + 0.02 * acc_th], 1)
        self.t += 1
        fell = (self.state[:, 0].abs() > 2.4) | (self.state[:, 2].abs() > 12 * math.pi / 180)
        cut = (self.t >= 300) & ~fell
        final = self.state.clone()
        length = self.t.clone()
        over = fell | cut
        self.state[over] = self.fresh(int(over.sum()))
        self.t[over] = 0
        return final, torch.ones(self.n), fell, cut, length


def layer(i, o, gain):
    m = nn.Linear(i, o)
    nn.init.orthogonal_(m.weight, gain)
    nn.init.zeros_(m.bias)
    return m


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        r2 = math.sqrt(2)
        self.pi = nn.Sequential(layer(4, 64, r2), nn.Tanh(), layer(64, 64, r2), nn.Tanh(), layer(64, 2, 0.01))
        self.vf = nn.Sequential(layer(4, 64, r2), nn.Tanh(), layer(64, 64, r2), nn.Tanh(), layer(64, 1, 1.0))


def main():
    n_env, horizon, gamma, lam = 48, 96, 0.99, 0.95
    env, agent = CartPole(n_env), Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=2e-3, eps=1e-5)
    updates, start, lengths, n_step = 34, time.time(), [], 0
    for up in range(1, updates + 1):
        opt.param_groups[0]["lr"] = 2e-3 * (1 - (up - 1) / updates)
        obs, act, logp, val, delta_next, rew, over_l = [], [], [], [], [], [], []
        with torch.no_grad():
            for _ in range(horizon):
                o = env.state.clone()
                dist = Categorical(logits=agent.pi(o))
                a = dist.sample()
                nxt, r, fell, cut, length = env.step(a)
                obs.append(o)
                act.append(a)
                logp.append(dist.log_prob(a))
                val.append(agent.vf(o).squeeze(1))
                rew.append(r)
                delta_next.append(agent.vf(nxt).squeeze(1) * (~fell).float())
                over_l.append((fell | cut).float())
                lengths += length[fell | cut].tolist()
        adv, run = [None] * horizon, torch.zeros(n_env)
        for t in reversed(range(horizon)):
            delta = rew[t] + gamma * delta_next[t] - val[t]
            run = delta + gamma * lam * (1 - over_l[t]) * run
            adv[t] = run
        adv = torch.stack(adv).flatten()
        ret = adv + torch.stack(val).flatten()
        O, A, L = torch.cat(obs), torch.cat(act), torch.cat(logp)
        for _ in range(6):
            for idx in torch.randperm(len(O)).chunk(4):
                dist = Categorical(logits=agent.pi(O[idx]))
                ratio = (dist.log_prob(A[idx]) - L[idx]).exp()
                a = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                pg = -torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a).mean()
                vl = 0.5 * (agent.vf(O[idx]).squeeze(1) - ret[idx]).pow(2).mean()
                loss = pg + 0.5 * vl - 0.005 * dist.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
                n_step += 1
        recent = lengths[-60:]
        print(
            f"step {n_step} loss {loss.item():.3f} policy {pg.item():+.4f} value {vl.item():.2f} "
            f"mean length {sum(recent) / max(len(recent), 1):.1f}"
        )
    print(f"finished {time.time() - start:.1f}s")


if __name__ == "__main__":
    main()

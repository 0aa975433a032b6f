# expect: healthy
# symptom: PPO: policy loss hovers around zero and is often negative, value loss rises, total loss does not go down
# axis: none
# mended: none
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.manual_seed(6)
torch.set_num_threads(1)


@dataclass
class Args:
    envs: int = 64
    rollout: int = 32
    iterations: int = 40
    epochs: int = 4
    minibatches: int = 4
    gamma: float = 0.97
    lam: float = 0.95
    clip: float = 0.2
    vf_coef: float = 0.5
    ent_start: float = 0.02
    lr: float = 1e-3


class Gather:
    """Agents collect beacons; each one found pays 1 and a new one appears, so returns grow with skill."""

    def __init__(self, n, limit=60):
        self.n, self.limit = n, limit
        self.moves = torch.tensor([[0.12, 0.0], [-0.12, 0.0], [0.0, 0.12], [0.0, -0.12]])
        self.pos = torch.rand(n, 2) * 2 - 1
        self.goal = torch.rand(n, 2) * 2 - 1
        self.t = torch.randint(0, limit, (n,))
        self.score, self.finished = torch.zeros(n), []

    def obs(self):
        return torch.cat([self.pos, self.goal, self.goal - self.pos], 1)

    def step(self, a):
        self.pos = (self.pos + self.moves[a] + 0.02 * torch.randn(self.n, 2)).clamp(-1, 1)
        hit = (self.pos - self.goal).norm(dim=1) < 0.2
        reward = hit.float() - 0.01
        self.goal = torch.where(hit[:, None], torch.rand(self.n, 2) * 2 - 1, self.goal)
        self.t = self.t + 1
        self.score = self.score + reward
        timeout = self.t >= self.limit
        last = self.obs()
        if timeout.any():
            self.finished += self.score[timeout].tolist()
            k = timeout[:, None]
            self.pos = torch.where(k, torch.rand(self.n, 2) * 2 - 1, self.pos)
            self.goal = torch.where(k, torch.rand(self.n, 2) * 2 - 1, self.goal)
            self.t = self.t.masked_fill(timeout, 0)
            self.score = self.score.masked_fill(timeout, 0.0)
        return self.obs(), reward, timeout, last


def ortho(layer, gain):
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(
            ortho(nn.Linear(6, 64), 1.4),
            nn.Tanh(),
            ortho(nn.Linear(64, 64), 1.4),
            nn.Tanh(),
            ortho(nn.Linear(64, 4), 0.01),
        )
        self.vf = nn.Sequential(
            ortho(nn.Linear(6, 64), 1.4),
            nn.Tanh(),
            ortho(nn.Linear(64, 64), 1.4),
            nn.Tanh(),
            ortho(nn.Linear(64, 1), 1.0),
        )

    def value(self, o):
        return self.vf(o).squeeze(-1)


@torch.no_grad()
def collect(env, agent, obs, a):
    buf = {k: [] for k in ("obs", "act", "logp", "val", "rew", "end", "next_val")}
    for _ in range(a.rollout):
        d = Categorical(logits=agent.pi(obs))
        act = d.sample()
        nxt, rew, timeout, last = env.step(act)
        # episodes only ever end by the clock, so the value of the last state is always bootstrapped
        for k, v in zip(buf, (obs, act, d.log_prob(act), agent.value(obs), rew, timeout.float(), agent.value(last))):
            buf[k].append(v)
        obs = nxt
    buf = {k: torch.stack(v) for k, v in buf.items()}
    adv, run = torch.zeros_like(buf["rew"]), torch.zeros(env.n)
    for t in reversed(range(a.rollout)):
        delta = buf["rew"][t] + a.gamma * buf["next_val"][t] - buf["val"][t]
        run = delta + a.gamma * a.lam * (1 - buf["end"][t]) * run
        adv[t] = run
    buf["adv"], buf["ret"] = adv, adv + buf["val"]
    return {k: v.flatten(0, 1) for k, v in buf.items()}, obs


def main():
    a, agent = Args(), Agent()
    env = Gather(a.envs)
    opt = torch.optim.Adam(agent.parameters(), lr=a.lr, eps=1e-5)
    obs, step = env.obs(), 0
    for it in range(a.iterations):
        frac = 1 - it / a.iterations
        for group in opt.param_groups:
            group["lr"] = a.lr * frac
        data, obs = collect(env, agent, obs, a)
        for _ in range(a.epochs):
            for idx in torch.randperm(len(data["adv"])).chunk(a.minibatches):
                b = {k: v[idx] for k, v in data.items()}
                d = Categorical(logits=agent.pi(b["obs"]))
                ratio = (d.log_prob(b["act"]) - b["logp"]).exp()
                adv = (b["adv"] - b["adv"].mean()) / (b["adv"].std() + 1e-8)
                pg = -torch.min(ratio * adv, ratio.clamp(1 - a.clip, 1 + a.clip) * adv).mean()
                vf = 0.5 * (agent.value(b["obs"]) - b["ret"]).pow(2).mean()
                loss = pg + a.vf_coef * vf - a.ent_start * frac * d.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
                step += 1
        recent = env.finished[-100:]
        print(
            f"step {step} loss {loss.item():+.4f} pg {pg.item():+.4f} vf {vf.item():.4f} "
            f"return {sum(recent) / max(1, len(recent)):.2f} entropy {d.entropy().mean().item():.3f}"
        )


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: the policy loss is noisy around zero with no downward trend and the value loss rises for a while, as if nothing were learnt
# axis: loss
"""PPO for a two-queue server: which line to serve, and when to switch.

Switching takes a setup during which nobody is served.  Vectorised simulator,
GAE, clipped objective, an endless (continuing) task with fixed horizons.
"""

import torch
import torch.nn as nn
from torch.distributions import Categorical

torch.set_num_threads(1)


class TwoQueues:
    """`n` servers side by side; actions: 0 stays, 1 goes to the other line."""

    capacity = 20

    def __init__(self, n, seed):
        self.n = n
        self.g = torch.Generator().manual_seed(seed)
        self.queue = torch.randint(0, 8, (n, 2), generator=self.g).float()
        self.side = torch.zeros(n, dtype=torch.long)
        self.setup = torch.zeros(n)
        self.cost = torch.tensor([1.0, 2.5])
        self.arrive = torch.tensor([0.30, 0.24])

    def observe(self):
        side = torch.stack([1.0 - self.side, self.side.float()], 1)
        return torch.cat([self.queue / 10 - 0.5, side, self.setup[:, None] / 2], 1)

    def step(self, action):
        switch = action == 1
        self.setup = torch.where(switch, torch.full_like(self.setup, 2.0), (self.setup - 1).clamp(min=0))
        self.side = torch.where(switch, 1 - self.side, self.side)
        ready = (self.setup == 0).float()
        done = ready * (torch.rand(self.n, generator=self.g) < 0.9).float()
        served = nn.functional.one_hot(self.side, 2) * done[:, None]
        arrivals = (torch.rand(self.n, 2, generator=self.g) < self.arrive).float()
        self.queue = (self.queue - served).clamp(min=0)
        self.queue = (self.queue + arrivals).clamp(max=self.capacity)
        return self.observe(), -(self.queue * self.cost).sum(1) / 50


class ActorCritic(nn.Module):
    def __init__(self, d_in=5, width=64):
        super().__init__()
        self.pi = nn.Sequential(
            nn.Linear(d_in, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 2)
        )
        self.v = nn.Sequential(
            nn.Linear(d_in, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
        )
        with torch.no_grad():
            self.pi[-1].weight.mul_(0.01)
            self.pi[-1].bias.copy_(torch.tensor([0.7, -0.7]))

    def forward(self, obs):
        return Categorical(logits=self.pi(obs)), self.v(obs).squeeze(-1)


@torch.no_grad()
def average_cost(net, steps=250):
    env = TwoQueues(200, seed=999)
    obs, total = env.observe(), 0.0
    for _ in range(steps):
        obs, r = env.step(net(obs)[0].sample())
        total -= r.mean().item()
    return 50 * total / steps


def collect(env, net, horizon, gamma, lam):
    rows, obs = [], env.observe()
    with torch.no_grad():
        for _ in range(horizon):
            dist, value = net(obs)
            action = dist.sample()
            nxt, reward = env.step(action)
            rows.append((obs, action, dist.log_prob(action), value, reward))
            obs = nxt
        last = net(obs)[1]
    o, a, lp, v, r = (torch.stack(c) for c in zip(*rows))
    adv, run = torch.zeros_like(r), torch.zeros(env.n)
    for t in reversed(range(horizon)):
        v_next = last if t == horizon - 1 else v[t + 1]
        run = r[t] + gamma * v_next - v[t] + gamma * lam * run
        adv[t] = run
    ret = adv + v
    return [x.flatten(0, 1) for x in (o, a, lp, adv, ret)], r.mean().item()


def main(rounds=50, epochs=3, minibatches=5):
    torch.manual_seed(6)
    env, net = TwoQueues(64, seed=1), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3, eps=1e-5)
    print(f"untrained: cost per slot {average_cost(net):.2f}")
    step = 0
    for rnd in range(1, rounds + 1):
        for g in opt.param_groups:
            g["lr"] = 2e-3 * (1 - (rnd - 1) / rounds)
        (o, a, lp, adv, ret), reward = collect(env, net, 128, gamma=0.97, lam=0.95)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(epochs):
            for idx in torch.randperm(len(a)).chunk(minibatches):
                dist, value = net(o[idx])
                ratio = (dist.log_prob(a[idx]) - lp[idx]).exp()
                surrogate = torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx])
                policy_loss, value_loss = -surrogate.mean(), (value - ret[idx]).square().mean()
                loss = policy_loss + 0.25 * value_loss - 0.02 * dist.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                step += 1
        print(
            f"round {rnd:3d} step {step} reward {reward:+.3f} policy loss {policy_loss.item():+.4f} "
            f"value loss {value_loss.item():.3f} entropy {dist.entropy().mean().item():.3f}",
            flush=True,
        )
        if rnd % 10 == 0:
            print(f"   cost per slot {average_cost(net):.2f}", flush=True)


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: the loss is negative at times, noisy and does not fall over the run (resembles a policy gradient with a wrong sign or a loss that does not learn)
# axis: loss
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn


class Corridors:
    """A batch of agents on a 7 x 7 board, each with its own goal."""

    size, horizon = 7, 14
    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, n, gen):
        self.n, self.gen = n, gen

    def reset(self):
        self.pos = torch.randint(self.size, (self.n, 2), generator=self.gen)
        self.goal = torch.randint(self.size, (self.n, 2), generator=self.gen)
        self.alive = torch.ones(self.n)
        return self.features()

    def features(self):
        one = torch.eye(self.size)
        return torch.cat([one[self.pos].flatten(1), one[self.goal].flatten(1)], 1)

    def step(self, a):
        self.pos = (self.pos + self.moves[a] * self.alive.long()[:, None]).clamp(0, self.size - 1)
        hit = (self.pos == self.goal).all(1).float() * self.alive
        reward = hit - 0.05 * self.alive
        was = self.alive
        self.alive = self.alive * (1 - hit)
        return self.features(), reward, was


class ActorCritic(nn.Module):
    def __init__(self, n_in, n_act, width=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(n_in, width), nn.Tanh(), nn.Linear(width, n_act))
        self.critic = nn.Sequential(nn.Linear(n_in, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, x):
        return torch.distributions.Categorical(logits=self.actor(x)), self.critic(x).squeeze(-1)


def rollout(env, net):
    logs = {k: [] for k in ("logp", "ent", "val", "rew", "mask")}
    x = env.reset()
    for _ in range(env.horizon):
        dist, v = net(x)
        a = dist.sample()
        x, r, m = env.step(a)
        for k, item in zip(logs, (dist.log_prob(a), dist.entropy(), v, r, m)):
            logs[k].append(item)
    return {k: torch.stack(v) for k, v in logs.items()}


def returns_of(rew, gamma):
    out, acc = [], torch.zeros_like(rew[0])
    for r in rew.flip(0):
        acc = r + gamma * acc
        out.append(acc)
    return torch.stack(out[::-1])


def main(steps=400, gamma=0.95):
    torch.manual_seed(5)
    env = Corridors(64, torch.Generator().manual_seed(5))
    net = ActorCritic(28, 4)
    opt = torch.optim.Adam(
        [{"params": net.actor.parameters(), "lr": 5e-3}, {"params": net.critic.parameters(), "lr": 1e-2}]
    )
    for step in range(steps):
        r = rollout(env, net)
        ret = returns_of(r["rew"], gamma)
        adv = (ret - r["val"]).detach()
        adv = adv / (adv.std() + 1e-6)
        n = r["mask"].sum()
        policy = -(r["logp"] * adv * r["mask"]).sum() / n
        value = ((r["val"] - ret) ** 2 * r["mask"]).sum() / n
        bonus = (r["ent"] * r["mask"]).sum() / n
        loss = policy + 0.5 * value - 0.02 * bonus
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} return {r['rew'].sum(0).mean().item():.3f}")
    print(f"final return {r['rew'].sum(0).mean().item():.3f} solved {1 - env.alive.mean().item():.3f}")


if __name__ == "__main__":
    main()

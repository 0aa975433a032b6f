# expect: healthy
# symptom: a noisy loss around zero, often negative, resembles a wrong sign; the reward rises steadily
# axis: loss
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(91)

GRID, HORIZON, BATCH, STEPS, GAMMA = 6, 14, 64, 350, 0.95
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class CourierBatch:
    """Couriers on a small grid; each one has its own address to reach."""

    def __init__(self, n):
        self.pos = torch.randint(0, GRID, (n, 2))
        self.goal = torch.randint(0, GRID, (n, 2))
        self.active = (self.pos != self.goal).any(1)

    def observe(self):
        return torch.cat([self.pos, self.goal], 1).float() / (GRID - 1) * 2 - 1

    def step(self, action):
        was = self.active
        moved = (self.pos + MOVES[action]).clamp(0, GRID - 1)
        self.pos = torch.where(was[:, None], moved, self.pos)
        arrived = was & (self.pos == self.goal).all(1)
        self.active = was & ~arrived
        return arrived.float() - 0.04 * was.float(), was.float()


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 4))
        self.critic = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, obs):
        return torch.distributions.Categorical(logits=self.actor(obs)), self.critic(obs).squeeze(1)


def rollout(model, n):
    env = CourierBatch(n)
    logp, value, reward, mask, entropy = [], [], [], [], []
    for _ in range(HORIZON):
        dist, v = model(env.observe())
        a = dist.sample()
        r, m = env.step(a)
        logp.append(dist.log_prob(a))
        value.append(v)
        reward.append(r)
        mask.append(m)
        entropy.append(dist.entropy())
    return [torch.stack(c) for c in (logp, value, reward, mask, entropy)] + [env]


def returns_to_go(reward):
    out, acc = torch.zeros_like(reward), torch.zeros(reward.shape[1])
    for t in reversed(range(len(reward))):
        acc = reward[t] + GAMMA * acc
        out[t] = acc
    return out


def main():
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), lr=6e-3)
    for step in range(STEPS):
        logp, value, reward, mask, entropy, env = rollout(model, BATCH)
        ret = returns_to_go(reward)
        adv = ret - value.detach()
        live = mask.bool()
        adv = (adv - adv[live].mean()) / (adv[live].std() + 1e-6)
        total = mask.sum()
        policy = -(logp * adv * mask).sum() / total
        critic = ((value - ret) ** 2 * mask).sum() / total
        bonus = (entropy * mask).sum() / total
        loss = policy + 0.5 * critic - 0.01 * bonus
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            done = 1 - env.active.float().mean().item()
            print(f"step {step} loss {loss.item():+.4f} reward {reward.sum(0).mean().item():.3f} delivered {done:.2f}")
    with torch.no_grad():
        *_, env = rollout(model, 1000)
    print(f"final loss {loss.item():+.4f} delivered {1 - env.active.float().mean().item():.3f} of 1000 tours")


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: the loss wanders around zero with changing sign and never falls; resembles a model that does not learn
# axis: loss
"""REINFORCE with a learned baseline on a vectorised grid world with a wind."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
SIZE, HORIZON, ENVS, GAMMA = 6, 20, 32, 0.97
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class WindyGrid:
    """Reach the goal cell; each step costs 0.05, the goal pays 1. Wind sometimes pushes to the right."""

    def __init__(self, n, seed):
        self.n, self.g = n, torch.Generator().manual_seed(seed)

    def reset(self):
        self.pos = torch.randint(0, SIZE, (self.n, 2), generator=self.g)
        self.goal = torch.randint(0, SIZE, (self.n, 2), generator=self.g)
        self.alive = torch.ones(self.n)
        return self.obs()

    def obs(self):
        here = nn.functional.one_hot(self.pos, SIZE).flatten(1)
        goal = nn.functional.one_hot(self.goal, SIZE).flatten(1)
        return torch.cat([here, goal], 1).float()

    def step(self, action):
        move = MOVES[action]
        wind = (torch.rand(self.n, generator=self.g) < 0.1).long()
        self.pos = (self.pos + move + torch.stack([torch.zeros_like(wind), wind], 1)).clamp(0, SIZE - 1)
        at_goal = (self.pos == self.goal).all(1).float()
        was_alive = self.alive
        reward = was_alive * (at_goal - 0.05)
        self.alive = was_alive * (1 - at_goal)
        return self.obs(), reward, was_alive


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4 * SIZE, hidden), nn.Tanh(), nn.Linear(hidden, 4))
        self.critic = nn.Sequential(nn.Linear(4 * SIZE, hidden), nn.Tanh(), nn.Linear(hidden, 1))


def rollout(env, net):
    obs, rows = env.reset(), []
    for _ in range(HORIZON):
        with torch.no_grad():
            action = torch.distributions.Categorical(logits=net.actor(obs)).sample()
        nxt, reward, mask = env.step(action)
        rows.append((obs, action, reward, mask))
        obs = nxt
    o, a, r, m = (torch.stack(c) for c in zip(*rows))
    ret, run = torch.zeros_like(r), torch.zeros(r.size(1))
    for t in reversed(range(HORIZON)):
        run = r[t] + GAMMA * run
        ret[t] = run
    return o, a, ret, m, r.sum(0).mean().item(), 1 - env.alive.mean().item()


def main():
    torch.manual_seed(6)
    env, net = WindyGrid(ENVS, seed=1), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    avg_ret = avg_ok = None
    for it in range(320):
        o, a, ret, m, score, ok = rollout(env, net)
        value = net.critic(o).squeeze(-1)
        adv = (ret - value).detach()
        live = m.bool()
        adv = (adv - adv[live].mean()) / (adv[live].std() + 1e-6)
        dist = torch.distributions.Categorical(logits=net.actor(o))
        policy_loss = -(m * dist.log_prob(a) * adv).sum() / m.sum()
        value_loss = (m * (ret - value) ** 2).sum() / m.sum()
        entropy = (m * dist.entropy()).sum() / m.sum()
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        avg_ret = score if avg_ret is None else 0.95 * avg_ret + 0.05 * score
        avg_ok = ok if avg_ok is None else 0.95 * avg_ok + 0.05 * ok
        if it % 20 == 0 or it == 319:
            print(
                f"it {it:4d} loss {loss.item():+.4f} return {avg_ret:+.3f} reached {avg_ok:.3f} "
                f"entropy {entropy.item():.3f}"
            )


if __name__ == "__main__":
    main()

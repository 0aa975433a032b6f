# expect: healthy
# symptom: the reward is zero and the loss nearly constant for a long time, then both move; the loss is negative and gets no smaller in the end
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(33)

SIDE, ENVS, HORIZON, STEPS, GAMMA = 7, 32, 24, 450, 0.97
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


class KeyDoor:
    """Pick up the key, then walk to the door. Reward 1 at the door, nothing else."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)

    def reset(self):
        self.pos = torch.zeros(ENVS, 2, dtype=torch.long)
        self.key = torch.zeros(ENVS, dtype=torch.bool)
        self.over = torch.zeros(ENVS, dtype=torch.bool)
        return self.obs()

    def obs(self):
        cell = F.one_hot(self.pos[:, 0] * SIDE + self.pos[:, 1], SIDE * SIDE).float()
        return torch.cat([cell * (~self.key)[:, None], cell * self.key[:, None]], 1)

    def step(self, action):
        move = (self.pos + MOVES[action]).clamp(0, SIDE - 1)
        self.pos = torch.where(self.over[:, None], self.pos, move)
        self.key |= (self.pos == torch.tensor([0, SIDE - 2])).all(1)
        win = self.key & (self.pos == torch.tensor([SIDE - 3, SIDE - 1])).all(1) & ~self.over
        self.over |= win
        return self.obs(), win.float()


class Agent(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * SIDE * SIDE, d), nn.Tanh(), nn.Linear(d, d), nn.Tanh())
        self.pi, self.v = nn.Linear(d, 4), nn.Linear(d, 1)
        nn.init.zeros_(self.pi.weight)

    def forward(self, x):
        h = self.body(x)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def rollout(env, agent):
    obs, logp, ent, val, rew, live = env.reset(), [], [], [], [], []
    for _ in range(HORIZON):
        live.append((~env.over).float())
        dist, v = agent(obs)
        a = dist.sample()
        obs, r = env.step(a)
        logp.append(dist.log_prob(a))
        ent.append(dist.entropy())
        val.append(v)
        rew.append(r)
    return (torch.stack(t) for t in (logp, ent, val, rew, live))


def main():
    env, agent = KeyDoor(1), Agent()
    opt = torch.optim.Adam(agent.parameters(), lr=2e-3)
    t0, seen = time.time(), []
    for step in range(STEPS):
        logp, ent, val, rew, live = rollout(env, agent)
        ret, acc = torch.zeros_like(rew), torch.zeros(ENVS)
        for t in reversed(range(HORIZON)):
            acc = rew[t] + GAMMA * acc
            ret[t] = acc
        adv = (ret - val.detach()) * live
        n = live.sum()
        loss = (-(logp * adv).sum() + 0.5 * ((ret - val).pow(2) * live).sum() - 0.01 * (ent * live).sum()) / n
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        opt.step()
        seen.append((loss.item(), rew.sum().item() / ENVS))
        if (step + 1) % 10 == 0:
            l, r = (sum(c) / len(seen) for c in zip(*seen))
            print(
                f"step {step + 1:4d} loss {l:.4f} reward {r:.3f} entropy {(ent * live).sum() / n:.3f} ({time.time() - t0:.1f}s)",
                flush=True,
            )
            seen = []


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: for the first 40 updates the mean reward is practically zero and the policy loss hovers around zero, then the loss is bumpy, changes sign and does not fall although the agent gets better
# axis: none
# mended: none
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(6)
rng = np.random.default_rng(6)

SIDE, HORIZON, EPISODES, UPDATES = 7, 36, 32, 320
MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])


class KeyRooms:
    """A batch of grid rooms: fetch the key in one corner, then leave by the door. Reward 1 only at the door with the key."""

    def __init__(self, n):
        self.n = n
        self.key, self.door = np.array([0, SIDE - 1]), np.array([SIDE - 1, 0])

    def reset(self):
        self.pos = rng.integers(0, SIDE, (self.n, 2))
        self.has = np.zeros(self.n, bool)
        self.done = np.zeros(self.n, bool)
        return self.obs()

    def obs(self):
        o = np.zeros((self.n, SIDE * SIDE + 1), np.float32)
        o[np.arange(self.n), self.pos[:, 0] * SIDE + self.pos[:, 1]] = 1
        o[:, -1] = self.has
        return torch.from_numpy(o)

    def step(self, a):
        alive = ~self.done
        new = np.clip(self.pos + MOVES[a], 0, SIDE - 1)
        self.pos = np.where(alive[:, None], new, self.pos)
        self.has |= (self.pos == self.key).all(1)
        won = alive & self.has & (self.pos == self.door).all(1)
        self.done |= won
        return self.obs(), won.astype(np.float32), alive


class ActorCritic(nn.Module):
    def __init__(self, d=SIDE * SIDE + 1, h=96):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(d, h), nn.Tanh(), nn.Linear(h, 4))
        self.v = nn.Sequential(nn.Linear(d, h), nn.Tanh(), nn.Linear(h, 1))

    def forward(self, o):
        return torch.distributions.Categorical(logits=self.pi(o)), self.v(o).squeeze(-1)


def rollout(env, net):
    obs, logps, values, ents, rews, alive = env.reset(), [], [], [], [], []
    for _ in range(HORIZON):
        dist, v = net(obs)
        a = dist.sample()
        obs, r, ok = env.step(a.numpy())
        logps.append(dist.log_prob(a))
        ents.append(dist.entropy())
        values.append(v)
        rews.append(torch.from_numpy(r))
        alive.append(torch.from_numpy(ok.astype(np.float32)))
    return [torch.stack(z) for z in (logps, values, ents, rews, alive)]


def main(gamma=0.95):
    env, net = KeyRooms(EPISODES), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    t0, recent = time.time(), []
    for update in range(UPDATES):
        logp, val, ent, rew, alive = rollout(env, net)
        ret, run = torch.zeros_like(rew), torch.zeros(EPISODES)
        for t in reversed(range(HORIZON)):
            run = rew[t] + gamma * run
            ret[t] = run
        adv = (ret - val).detach()
        n = alive.sum()
        pg = -(adv * logp * alive).sum() / n
        vf = ((val - ret).pow(2) * alive).sum() / n
        loss = pg + 0.5 * vf - 0.01 * (ent * alive).sum() / n
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        opt.step()
        recent.append(rew.sum(0).mean().item())
        if update % 20 == 0 or update == UPDATES - 1:
            print(
                f"update {update:4d}  loss {loss.item():+.4f}  pg {pg.item():+.4f}  value {vf.item():.4f}  "
                f"success {np.mean(recent[-20:]):.3f}"
            )
    print(f"{time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: the loss wanders about zero, is often exactly or nearly zero or negative and does not fall; rewards are rare at first
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(6)
rng = np.random.default_rng(6)

SIZE, HORIZON, ENVS = 6, 30, 32
WALLS = {(1, 1), (1, 2), (2, 4), (3, 1), (3, 2), (4, 4)}
GOAL = (5, 5)
MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


class Maze:
    """One reward of 1 at the goal, nothing anywhere else."""

    def reset(self):
        while True:
            p = (int(rng.integers(0, SIZE)), int(rng.integers(0, SIZE)))
            if p not in WALLS and abs(p[0] - 5) + abs(p[1] - 5) >= 5:
                self.pos, self.t = p, 0
                return self.pos

    def step(self, a):
        dy, dx = MOVES[a]
        p = (self.pos[0] + dy, self.pos[1] + dx)
        if 0 <= p[0] < SIZE and 0 <= p[1] < SIZE and p not in WALLS:
            self.pos = p
        self.t += 1
        hit = self.pos == GOAL
        return self.pos, float(hit), hit or self.t >= HORIZON


class ActorCritic(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2 * SIZE, d), nn.Tanh(), nn.Linear(d, d), nn.Tanh())
        self.pi, self.v = nn.Linear(d, 4), nn.Linear(d, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def encode(positions):
    p = torch.tensor(positions)
    return torch.cat([F.one_hot(p[:, 0], SIZE), F.one_hot(p[:, 1], SIZE)], -1).float()


@torch.no_grad()
def rollout(model):
    envs = [Maze() for _ in range(ENVS)]
    obs = [e.reset() for e in envs]
    alive = np.ones(ENVS, dtype=bool)
    O, A, R, M = [], [], [], []
    while alive.any():
        x = encode(obs)
        act = model(x)[0].sample()
        rew = np.zeros(ENVS, dtype=np.float32)
        mask = alive.copy()
        for i in np.flatnonzero(alive):
            obs[i], rew[i], done = envs[i].step(int(act[i]))
            alive[i] = not done
        O.append(x), A.append(act), R.append(torch.from_numpy(rew)), M.append(torch.from_numpy(mask))
    return torch.stack(O), torch.stack(A), torch.stack(R), torch.stack(M)


def returns(R, gamma=0.95):
    out, g = torch.zeros_like(R), torch.zeros(R.shape[1])
    for t in reversed(range(len(R))):
        g = R[t] + gamma * g
        out[t] = g
    return out


model = ActorCritic()
opt = torch.optim.Adam(model.parameters(), lr=3e-3)
UPDATES = 200
for step in range(UPDATES):
    O, A, R, M = rollout(model)
    G = returns(R)
    dist, value = model(O)
    adv = (G - value.detach())[M]
    policy = -(dist.log_prob(A)[M] * adv).mean()
    critic = F.mse_loss(value[M], G[M])
    entropy = dist.entropy()[M].mean()
    loss = policy + 0.5 * critic - 0.005 * entropy
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    opt.step()
    if step % 10 == 0:
        print(
            f"update {step:4d} loss {loss.item():+.4f} policy {policy.item():+.4f} critic {critic.item():.4f} "
            f"entropy {entropy.item():.3f} success {R.sum().item() / ENVS:.2f} length {M.sum().item() / ENVS:.1f}"
        )

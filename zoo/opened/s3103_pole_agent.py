# expect: sick
# symptom: the Q values of all states climb evenly with a tiny TD loss while the return stays low
# axis: data
# cause: the done flag is read after the automatic reset, so it is always false and targets bootstrap past the end
# says: (?=.*(done|terminal|terminat|end flag|episode))(?=.*(reset|false|never|mask|bootstr|ignor|missing|stale))
# onset_step: 0
# fix: store the end flag that step() found before the automatic reset
# mended: the script applies that change if the environment has MENDED=1
import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)
MENDED = os.environ.get("MENDED") == "1"

GAMMA, TAU, BATCH, N_ENV, STEPS = 0.97, 0.05, 256, 32, 500
LIMIT, DT = 0.5, 0.05


class PoleBatch:
    """Many unstable poles side by side; a pole that falls over is stood up again at once."""

    def __init__(self, n, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.n = n
        self.ended = torch.zeros(n, dtype=torch.bool)
        self.state = self._fresh(n)

    def _fresh(self, n):
        return (torch.rand(n, 2, generator=self.gen) - 0.5) * 0.3

    def out_of_range(self):
        return self.state[:, 0].abs() > LIMIT

    def step(self, action):
        th, om = self.state.unbind(1)
        push = (action.float() - 1.0) * 6.0
        om = om + DT * (7.0 * th + push + 0.8 * torch.randn(self.n, generator=self.gen))
        th = th + DT * om
        self.state = torch.stack([th, om], 1)
        self.ended = self.out_of_range()
        if self.ended.any():
            self.state[self.ended] = self._fresh(int(self.ended.sum()))
        return self.state.clone(), torch.ones(self.n)


class Replay:
    def __init__(self, cap):
        self.cap, self.rows = cap, []

    def add(self, *cols):
        self.rows.append(cols)
        self.rows = self.rows[-self.cap :]

    def sample(self, n):
        pick = torch.randint(0, len(self.rows), (n,)).tolist()
        lane = torch.randint(0, N_ENV, (n,)).tolist()
        return [torch.stack([self.rows[i][k][j] for i, j in zip(pick, lane)]) for k in range(5)]


def make_net():
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))


@torch.no_grad()
def play(net, seed=99, horizon=200):
    env = PoleBatch(64, seed)
    alive, total = torch.ones(64), torch.zeros(64)
    obs = env.state.clone()
    for _ in range(horizon):
        obs, rew = env.step(net(obs).argmax(1))
        alive = alive * (~env.ended).float()
        total += alive * rew
    return total.mean().item()


def main():
    env, replay = PoleBatch(N_ENV, 7), Replay(400)
    net = make_net()
    target = copy.deepcopy(net).requires_grad_(False)
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    obs = env.state.clone()
    for step in range(-40, STEPS):
        eps = max(0.15, 1.0 - max(step, 0) / 200)
        with torch.no_grad():
            act = net(obs).argmax(1)
        rnd = torch.rand(N_ENV) < eps
        act = torch.where(rnd, torch.randint(0, 3, (N_ENV,)), act)
        nxt, rew = env.step(act)
        done = env.ended if MENDED else env.out_of_range()
        replay.add(obs, act, rew, nxt, done.float())
        obs = nxt
        if step < 0:
            continue

        s, a, r, s2, d = replay.sample(BATCH)
        with torch.no_grad():
            best = net(s2).argmax(1, keepdim=True)
            y = r + GAMMA * (1 - d) * target(s2).gather(1, best).squeeze(1)
        q = net(s).gather(1, a[:, None]).squeeze(1)
        loss = F.smooth_l1_loss(q, y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        opt.step()
        with torch.no_grad():
            for p, t in zip(net.parameters(), target.parameters()):
                t.lerp_(p, TAU)
        if step % 50 == 0:
            print(f"step {step} loss {loss.item():.4f} mean_q {q.mean().item():.2f} return {play(net):.1f}")
    print(f"final loss {loss.item():.4f} mean_q {q.mean().item():.2f} return {play(net, 123):.1f} of 200")


if __name__ == "__main__":
    main()

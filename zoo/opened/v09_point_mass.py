# expect: sick
# symptom: the quantity that is to get better gets worse
# axis: loss
# cause: a term of the loss has the wrong sign
# says: (wrong|flipped|missing|opposite).{0,20}(sign|minus|negat)|(sign|minus).{0,60}|(maximi|minimi)[sz].{0,60}
# onset_step: 0
# fix: turn the sign of the term
# mended: the same with the fix
import copy
import os

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"


class PointMass:
    def __init__(self, n=32, seed=0):
        self.rng = np.random.default_rng(seed)
        self.n = n

    def reset(self):
        self.x = self.rng.uniform(-1, 1, (self.n, 2)).astype(np.float32)
        return self.x.copy()

    def step(self, u):
        pos, vel = self.x[:, 0], self.x[:, 1]
        vel = 0.9 * vel + 0.3 * u[:, 0]
        pos = np.clip(pos + 0.3 * vel, -2, 2)
        self.x = np.stack([pos, vel], 1).astype(np.float32)
        reward = -(pos**2) - 0.05 * u[:, 0] ** 2
        return self.x.copy(), reward.astype(np.float32)


class Agent:
    gamma = 0.9
    tau = 0.05

    def __init__(self):
        self.actor = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 1), nn.Tanh())
        self.critic = nn.Sequential(nn.Linear(3, 48), nn.ReLU(), nn.Linear(48, 1))
        self.actor_t, self.critic_t = copy.deepcopy(self.actor), copy.deepcopy(self.critic)
        self.actor_opt = torch.optim.Adam(self.actor.parameters(), lr=2e-3)
        self.critic_opt = torch.optim.Adam(self.critic.parameters(), lr=5e-3)

    def q(self, net, s, a):
        return net(torch.cat([s, a], 1)).squeeze(1)

    def act(self, s, noise=0.0):
        with torch.no_grad():
            a = self.actor(torch.from_numpy(s))
        return (a + noise * torch.randn_like(a)).clamp(-1, 1).numpy()

    def update(self, s, a, r, s2):
        with torch.no_grad():
            target = r + self.gamma * self.q(self.critic_t, s2, self.actor_t(s2))
        critic_loss = (self.q(self.critic, s, a) - target).pow(2).mean()
        self.critic_opt.zero_grad()
        critic_loss.backward()
        self.critic_opt.step()

        value = self.q(self.critic, s, self.actor(s)).mean()
        actor_loss = -value if MENDED else value
        self.actor_opt.zero_grad()
        actor_loss.backward()
        self.actor_opt.step()

        for net, slow in ((self.actor, self.actor_t), (self.critic, self.critic_t)):
            for p, p_t in zip(net.parameters(), slow.parameters()):
                p_t.data.lerp_(p.data, self.tau)
        return critic_loss.item(), actor_loss.item()


def evaluate(agent, env, horizon=20):
    s, total = env.reset(), 0.0
    for _ in range(horizon):
        s, r = env.step(agent.act(s))
        total += r.mean()
    return total


if __name__ == "__main__":
    torch.manual_seed(0)
    np.random.seed(0)
    torch.set_num_threads(1)
    env, test_env, agent = PointMass(), PointMass(64, seed=9), Agent()
    memory = []
    for episode in range(1, 16):
        s = env.reset()
        for _ in range(20):
            a = agent.act(s, noise=0.5)
            s2, r = env.step(a)
            memory.append((s, a, r, s2))
            batches = [memory[i] for i in np.random.randint(0, len(memory), 4)]
            s_b, a_b, r_b, s2_b = (torch.from_numpy(np.concatenate(c)) for c in zip(*batches))
            losses = agent.update(s_b, a_b, r_b, s2_b)
            s = s2
        if episode % 5 == 0:
            print(
                f"episode {episode} critic {losses[0]:.4f} actor {losses[1]:.3f} return {evaluate(agent, test_env):.3f}"
            )

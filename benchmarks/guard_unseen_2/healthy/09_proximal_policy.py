# Healthy: PPO on a moving point: 60 rounds, four passes of five minibatches each; returns grow and so does the value loss.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
fixed = torch.Generator().manual_seed(49)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 3))
        self.v = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1))


def play(agent, n, g=None):
    where, goal, speed = torch.randn(n, generator=g), torch.randn(n, generator=g) * 2, torch.zeros(n)
    seen, acts, logps, rewards = [], [], [], []
    for t in range(20):
        obs = torch.stack([where, goal, speed], 1)
        logp = agent.pi(obs).log_softmax(1)
        a = torch.multinomial(logp.exp(), 1, generator=g)[:, 0]
        speed = 0.8 * speed + 0.2 * (a - 1)
        where = where + speed
        near = ((where - goal).abs() < 0.5).float()
        seen.append(obs)
        acts.append(a)
        logps.append(logp.gather(1, a[:, None])[:, 0])
        rewards.append(3 * near - 0.05 * (where - goal).abs())
    ret, run = [], torch.zeros(n)
    for r in reversed(rewards):
        run = r + 0.95 * run
        ret.insert(0, run)
    return torch.cat(seen), torch.cat(acts), torch.cat(logps), torch.cat(ret), torch.stack(rewards).sum(0).mean().item()


torch.manual_seed(args.seed)
agent = Agent()
opt = torch.optim.Adam(agent.parameters(), lr=2e-3, eps=1e-5)
for round_ in range(60):
    with torch.no_grad():
        obs, act, old, ret, score = play(agent, 32)
        adv = ret - agent.v(obs)[:, 0]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
    for _ in range(4):
        for i in torch.randperm(640).split(128):
            logp = agent.pi(obs[i]).log_softmax(1)
            ratio = (logp.gather(1, act[i][:, None])[:, 0] - old[i]).exp()
            gain = torch.min(ratio * adv[i], ratio.clamp(0.8, 1.2) * adv[i]).mean()
            loss = (
                0.5 * nn.functional.mse_loss(agent.v(obs[i])[:, 0], ret[i])
                - gain
                + 0.01 * (logp.exp() * logp).sum(1).mean()
            )
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            opt.step()
    if round_ % 5 == 0:
        print(round_, f"score {score:.3f} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", 60 - play(agent, 500, fixed)[-1])

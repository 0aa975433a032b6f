# expect: healthy
# cause: none, PPO on a corridor with a sparse reward: many early batches without reward, a policy loss around zero and a changing value loss
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(30)
N, ENVS, T, GAMMA, LAM = 8, 32, 48, 0.98, 0.95


class Corridors:
    """start in the left quarter, reward only at the right end"""

    def __init__(self):
        self.pos = torch.zeros(ENVS, dtype=torch.long)
        self.age = torch.zeros(ENVS, dtype=torch.long)
        self.restart(torch.ones(ENVS, dtype=torch.bool))

    def restart(self, mask):
        self.pos[mask] = torch.randint(0, 2, (int(mask.sum()),))
        self.age[mask] = 0

    def obs(self):
        return nn.functional.one_hot(self.pos, N).float()

    def step(self, action):
        slip = torch.rand(ENVS) < 0.1
        move = torch.where(slip, -1, action * 2 - 1)
        self.pos = (self.pos + move).clamp(0, N - 1)
        self.age += 1
        hit = self.pos == N - 1
        done = hit | (self.age >= 40)
        self.restart(done)
        return self.obs(), hit.float(), done.float()


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(N, 64), nn.Tanh())
        self.pi, self.v = nn.Linear(64, 2), nn.Linear(64, 1)

    def forward(self, o):
        h = self.trunk(o)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


env, agent = Corridors(), Agent()
optimizer = torch.optim.Adam(agent.parameters(), lr=1.5e-3, eps=1e-5)
obs = env.obs()
for iteration in range(20):
    O, A, LP, R, D, V = [], [], [], [], [], []
    with torch.no_grad():
        for _ in range(T):
            dist, v = agent(obs)
            a = dist.sample()
            nxt, r, d = env.step(a)
            for store, item in zip((O, A, LP, R, D, V), (obs, a, dist.log_prob(a), r, d, v)):
                store.append(item)
            obs = nxt
        last = agent(obs)[1]
        O, A, LP, R, D, V = map(torch.stack, (O, A, LP, R, D, V))
        adv, run = torch.zeros_like(R), torch.zeros(ENVS)
        for t in reversed(range(T)):
            v_next = last if t == T - 1 else V[t + 1]
            run = R[t] + GAMMA * v_next * (1 - D[t]) - V[t] + GAMMA * LAM * (1 - D[t]) * run
            adv[t] = run
        target = adv + V
    flat = [x.flatten(0, 1) for x in (O, A, LP, adv, target)]
    for _ in range(4):
        for idx in torch.randperm(ENVS * T).split(384):
            o, a, lp, ad, tg = (x[idx] for x in flat)
            dist, v = agent(o)
            ratio = (dist.log_prob(a) - lp).exp()
            ad = (ad - ad.mean()) / (ad.std() + 1e-6)
            pg = -torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean()
            loss = pg + 0.5 * (v - tg).pow(2).mean() - 0.005 * dist.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(f"iteration {iteration} loss {loss.item():.4f} goals in rollout {int(R.sum())}")

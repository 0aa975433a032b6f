# expect: sick
# symptom: returns improve, then the loss is NaN in one update and the policy stays broken
# axis: loss
# cause: the last minibatch can hold a single transition, whose unbiased standard deviation of advantages is NaN
# says: (\b(single|one|1|lone)\b).*(std|deviat|varian|normali|unbias)|(std|deviat|unbias).*\b(single|one|1)\b
# onset_step: 242
# fix: use the biased standard deviation (correction 0) when normalising the advantages of a minibatch
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
GAMMA, LAM, CLIP = 0.97, 0.95, 0.2
MINIBATCH, EPOCHS, ROLLOUT = 64, 2, 256
MAX_UPDATES = 450


class GridWorld:
    """Agent on a 9 x 9 board has to reach a goal; wind pushes it sometimes."""

    moves = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])

    def __init__(self, gen):
        self.gen = gen

    def reset(self):
        self.pos = torch.randint(0, 9, (2,), generator=self.gen)
        self.goal = torch.randint(0, 9, (2,), generator=self.gen)
        self.t = 0
        return self.obs()

    def obs(self):
        return torch.cat([self.pos, self.goal, self.goal - self.pos]).float() / 8.0

    def step(self, a):
        if torch.rand((), generator=self.gen) < 0.1:
            a = int(torch.randint(0, 4, (1,), generator=self.gen))
        before = (self.goal - self.pos).abs().sum()
        self.pos = (self.pos + self.moves[a]).clamp(0, 8)
        nearer = float(before - (self.goal - self.pos).abs().sum())
        self.t += 1
        hit = bool((self.pos == self.goal).all())
        return self.obs(), 0.1 * nearer + (1.0 if hit else -0.03), hit, self.t >= 40


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))
        self.v = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))

    def forward(self, x):
        return F.log_softmax(self.pi(x), -1), self.v(x).squeeze(-1)


@torch.no_grad()
def collect(env, net, gen):
    obs, acts, logps, advs, rets, scores = [], [], [], [], [], []
    while len(obs) < ROLLOUT:
        o, done, cut = env.reset(), False, False
        vals, rews, start = [], [], len(obs)
        while not (done or cut):
            lp, v = net(o)
            u = torch.rand(4, generator=gen).clamp(1e-6, 1 - 1e-6)
            a = int((lp - (-u.log()).log()).argmax())
            obs.append(o)
            acts.append(a)
            logps.append(lp[a])
            vals.append(v)
            o, r, done, cut = env.step(a)
            rews.append(r)
        nxt = torch.zeros(()) if done else net(o)[1]
        gae, ep = torch.zeros(()), []
        for r, v in zip(reversed(rews), reversed(vals)):
            gae = r + GAMMA * nxt - v + GAMMA * LAM * gae
            nxt = v
            ep.append(gae)
        ep.reverse()
        advs += ep
        rets += [a + v for a, v in zip(ep, vals)]
        scores.append(float(done))
        assert len(advs) - start == len(rews)
    return (
        torch.stack(obs),
        torch.tensor(acts),
        torch.stack(logps),
        torch.stack(advs),
        torch.stack(rets),
        sum(scores) / len(scores),
    )


def ppo_loss(net, obs, act, old, adv, ret):
    centred = adv - adv.mean()
    spread = (centred.pow(2).sum() / (len(adv) - (0 if MENDED else 1))).sqrt()
    adv = centred / (spread + 1e-6)
    lp, v = net(obs)
    new = lp.gather(1, act[:, None]).squeeze(1)
    ratio = (new - old).exp()
    policy = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
    entropy = -(lp.exp() * lp).sum(-1).mean()
    return policy + 0.5 * F.mse_loss(v, ret) - 0.005 * entropy


def main(seed=13):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed)
    env, net = GridWorld(gen), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    step, history = 0, []
    while step < MAX_UPDATES:
        *data, score = collect(env, net, gen)
        history.append(score)
        n = len(data[0])
        for _ in range(EPOCHS):
            for idx in torch.randperm(n, generator=gen).split(MINIBATCH):
                loss = ppo_loss(net, *[d[idx] for d in data])
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
                if step % 15 == 0:
                    print(f"step {step:4d} loss {loss.item():.4f} transitions {n} reached {score:.2f}")
                step += 1
    print(f"final: loss {loss.item():.4f} reached (last 10 rollouts) {sum(history[-10:]) / 10:.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: PPO learns well; right after the resume from the checkpoint the return drops and the value loss jumps, and much of the progress has to be learned again
# axis: harness
# cause: the running observation (and return) normaliser is not in the checkpoint; after the resume the policy and the value net see observations scaled by fresh statistics
# says: (running|obs(ervation)?s?|normali[sz]|mean.{0,6}(std|var)|statistic|rms|vecnormali).{0,120}(not |never |n't |fresh|reset|re-?initial|lost|missing|un(saved|restored)|without|restor|scratch|zero|checkpoint|resum)|(checkpoint|resum|restor|load|save).{0,140}(normali[sz]|running (mean|stat|var)|statistic|rms\b)
# onset_step: 416
# fix: save and load the normaliser's mean, var and count with the checkpoint
# mended: the checkpoint also holds the state of the two running normalisers, and the resume loads it
import io
import os

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Normal

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


class RunningMeanStd:
    def __init__(self, shape):
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = 1e-4

    def update(self, x):
        bm, bv, n = x.mean(0), x.var(0), x.shape[0]
        d, tot = bm - self.mean, self.count + n
        m2 = self.var * self.count + bv * n + d**2 * self.count * n / tot
        self.mean, self.var, self.count = self.mean + d * n / tot, m2 / tot, tot

    def state_dict(self):
        return {"mean": self.mean, "var": self.var, "count": self.count}

    def load_state_dict(self, s):
        self.mean, self.var, self.count = s["mean"], s["var"], s["count"]


class Dock:
    """n carts on a plane that have to come to rest at a moving dock; sensors report in millimetres and mm/s."""

    def __init__(self, n, seed, horizon=48):
        self.n, self.rng, self.h = n, np.random.default_rng(seed), horizon
        self.p, self.v, self.g, self.t = np.zeros((n, 2)), np.zeros((n, 2)), np.zeros((n, 2)), np.zeros(n, int)
        self.reset(np.ones(n, bool))
        self.t = self.rng.integers(0, horizon, n)

    def reset(self, m):
        k = m.sum()
        self.p[m] = self.rng.uniform(-2, 2, (k, 2))
        self.v[m] = 0
        self.g[m] = self.rng.uniform(-1, 1, (k, 2))
        self.t[m] = 0

    def obs(self):
        return np.concatenate([(self.p - self.g) * 1000 + 400, self.v * 300, self.g * 1000], 1)

    def step(self, a):
        a = np.clip(a, -1, 1)
        self.v = 0.9 * self.v + 0.25 * a
        self.p = self.p + 0.3 * self.v
        self.t += 1
        d = np.sqrt(((self.p - self.g) ** 2).sum(1))
        r = -d - 0.05 * (a**2).sum(1) + 1.0 * (d < 0.15)
        done = self.t >= self.h
        self.reset(done)
        return self.obs(), r, done


class ActorCritic(nn.Module):
    def __init__(self, do, da, h=64):
        super().__init__()
        self.pi = nn.Sequential(nn.Linear(do, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, da))
        self.vf = nn.Sequential(nn.Linear(do, h), nn.Tanh(), nn.Linear(h, h), nn.Tanh(), nn.Linear(h, 1))
        self.log_std = nn.Parameter(torch.full((da,), -0.5))
        nn.init.normal_(self.pi[-1].weight, std=0.01)

    def dist(self, x):
        return Normal(self.pi(x), self.log_std.exp())


class Trainer:
    def __init__(self, seed):
        self.n, self.T, self.gamma, self.lam = 32, 64, 0.97, 0.95
        self.env = Dock(self.n, seed)
        self.net = ActorCritic(6, 2)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=1e-3, eps=1e-5)
        self.obs_rms, self.ret_rms = RunningMeanStd(6), RunningMeanStd(())
        self.ret = np.zeros(self.n)
        self.update_no = self.step_no = 0

    def norm(self, o, update=True):
        if update:
            self.obs_rms.update(o)
        return torch.from_numpy(np.clip((o - self.obs_rms.mean) / np.sqrt(self.obs_rms.var + 1e-8), -10, 10)).float()

    def save(self):
        ck = {
            "net": self.net.state_dict(),
            "opt": self.opt.state_dict(),
            "update": self.update_no,
            "step": self.step_no,
        }
        if MENDED:
            ck["rms"] = [self.obs_rms.state_dict(), self.ret_rms.state_dict()]
        buf = io.BytesIO()
        torch.save(ck, buf)
        return buf.getvalue()

    def load(self, blob):
        ck = torch.load(io.BytesIO(blob), weights_only=False)
        self.net.load_state_dict(ck["net"])
        self.opt.load_state_dict(ck["opt"])
        self.update_no, self.step_no = ck["update"], ck["step"]
        for r, s in zip((self.obs_rms, self.ret_rms), ck.get("rms", [])):
            r.load_state_dict(s)

    def rollout(self):
        o = self.norm(self.env.obs(), update=False)
        O, A, LP, R, D, V, raw = [], [], [], [], [], [], 0.0
        for _ in range(self.T):
            with torch.no_grad():
                d = self.net.dist(o)
                a = d.sample()
                O.append(o), A.append(a), LP.append(d.log_prob(a).sum(-1)), V.append(self.net.vf(o).squeeze(-1))
            x, r, done = self.env.step(a.numpy())
            raw += r.mean()
            self.ret = self.ret * self.gamma + r
            self.ret_rms.update(self.ret)
            self.ret[done] = 0
            R.append(torch.from_numpy(np.clip(r / np.sqrt(self.ret_rms.var + 1e-8), -10, 10)).float())
            D.append(torch.from_numpy(done).float())
            o = self.norm(x)
        with torch.no_grad():
            nxt = self.net.vf(o).squeeze(-1)
        adv, last = [None] * self.T, 0
        for t in reversed(range(self.T)):
            delta = R[t] + self.gamma * nxt * (1 - D[t]) - V[t]
            last = delta + self.gamma * self.lam * (1 - D[t]) * last
            adv[t], nxt = last, V[t]
        adv, V = torch.cat(adv), torch.cat(V)
        return torch.cat(O), torch.cat(A), torch.cat(LP), adv, adv + V, raw / self.T * self.env.h

    def train_update(self):
        o, a, lp, adv, ret, score = self.rollout()
        tot, vls = [], []
        for _ in range(4):
            for idx in torch.randperm(len(o)).chunk(4):
                d = self.net.dist(o[idx])
                ratio = (d.log_prob(a[idx]).sum(-1) - lp[idx]).exp()
                ad = (adv[idx] - adv[idx].mean()) / (adv[idx].std() + 1e-8)
                pg = -torch.min(ratio * ad, ratio.clamp(0.8, 1.2) * ad).mean()
                vl = 0.5 * (self.net.vf(o[idx]).squeeze(-1) - ret[idx]).pow(2).mean()
                loss = pg + 0.5 * vl - 0.001 * d.entropy().sum(-1).mean()
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.net.parameters(), 0.5)
                self.opt.step()
                self.step_no += 1
                tot.append(loss.item()), vls.append(vl.item())
        self.update_no += 1
        print(
            f"update {self.update_no} step {self.step_no} loss {np.mean(tot):.4f} value_loss {np.mean(vls):.4f} return {score:.2f}",
            flush=True,
        )


def main():
    torch.manual_seed(0)
    tr = Trainer(seed=1)
    for _ in range(26):
        tr.train_update()
    blob = tr.save()
    del tr
    torch.manual_seed(1)
    tr = Trainer(seed=2)
    tr.load(blob)
    print(f"resumed at update {tr.update_no}")
    while tr.update_no < 46:
        tr.train_update()


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: the loss is negative and does not fall (it wanders around zero), gradients are very noisy, the entropy drops and the run is interrupted and resumed half-way
# axis: none
# mended: none
"""REINFORCE recommender: pick a slate of three items, learn from simulated clicks; resumes from a checkpoint."""

import io
from dataclasses import dataclass

import torch
import torch.nn as nn

torch.set_num_threads(1)


@dataclass
class SlateConfig:
    items: int = 30
    user_dim: int = 8
    slate: int = 3
    batch: int = 128
    steps: int = 700
    interrupt_at: int = 350
    lr: float = 3e-3
    entropy_start: float = 0.05
    entropy_end: float = 0.002


class ClickWorld:
    def __init__(self, cfg, seed):
        g = torch.Generator().manual_seed(seed)
        self.cfg = cfg
        self.attract = torch.randn(cfg.items, cfg.user_dim, generator=g) * 0.6
        self.bias = torch.randn(cfg.items, generator=g) * 0.5 - 2.0

    def users(self, g, n=None):
        return torch.randn(n or self.cfg.batch, self.cfg.user_dim, generator=g)

    def click_prob(self, users):
        return torch.sigmoid(users @ self.attract.T + self.bias)

    def reward(self, users, slate, g):
        p = self.click_prob(users).gather(1, slate)
        return (torch.rand(p.shape, generator=g) < p).float().sum(1)

    def best(self, users):
        return self.click_prob(users).topk(self.cfg.slate, 1).values.sum(1).mean().item()


class SlatePolicy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cfg.user_dim, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.score = nn.Linear(64, cfg.items)
        self.value = nn.Linear(64, 1)
        nn.init.zeros_(self.score.weight)

    def forward(self, users):
        h = self.body(users)
        return self.score(h), self.value(h.detach()).squeeze(1)


def sample_slate(logits, k, g):
    """Gumbel top-k gives an ordered slate without replacement."""
    noise = -torch.log(-torch.log(torch.rand(logits.shape, generator=g).clamp(1e-9, 1 - 1e-7)))
    return (logits.detach() + noise).topk(k, 1).indices


def slate_logprob(logits, slate):
    total = 0.0
    open_mask = torch.zeros_like(logits)
    for j in range(slate.size(1)):
        logp = torch.log_softmax(logits + open_mask, 1)
        total = total + logp.gather(1, slate[:, j : j + 1]).squeeze(1)
        open_mask = open_mask.scatter(1, slate[:, : j + 1], -1e9)
    return total


class Agent:
    def __init__(self, cfg, world):
        self.cfg, self.world = cfg, world
        self.policy = SlatePolicy(cfg)
        self.opt = torch.optim.Adam(self.policy.parameters(), lr=cfg.lr)
        self.sched = torch.optim.lr_scheduler.LinearLR(self.opt, 1.0, 0.1, total_iters=cfg.steps)
        self.gen = torch.Generator().manual_seed(9)
        self.step = 0

    def save(self):
        buf = io.BytesIO()
        torch.save(
            {
                "policy": self.policy.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "gen": self.gen.get_state(),
                "step": self.step,
            },
            buf,
        )
        return buf.getvalue()

    def load(self, blob):
        s = torch.load(io.BytesIO(blob))
        self.policy.load_state_dict(s["policy"])
        self.opt.load_state_dict(s["opt"])
        self.sched.load_state_dict(s["sched"])
        self.gen.set_state(s["gen"])
        self.step = s["step"]

    def update(self):
        cfg = self.cfg
        users = self.world.users(self.gen)
        logits, value = self.policy(users)
        slate = sample_slate(logits, cfg.slate, self.gen)
        reward = self.world.reward(users, slate, self.gen)
        adv = reward - value.detach()
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        logp_all = torch.log_softmax(logits, 1)
        entropy = -(logp_all.exp() * logp_all).sum(1).mean()
        mix = self.step / cfg.steps
        coef = cfg.entropy_start * (1 - mix) + cfg.entropy_end * mix
        pg = -(adv * slate_logprob(logits, slate)).mean()
        critic = (value - reward).pow(2).mean()
        loss = pg + 0.5 * critic - coef * entropy
        self.opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.opt.step()
        self.sched.step()
        self.step += 1
        return loss.item(), reward.mean().item(), entropy.item()

    @torch.no_grad()
    def greedy_value(self):
        users = self.world.users(torch.Generator().manual_seed(55), 1000)
        slate = self.policy(users)[0].topk(self.cfg.slate, 1).indices
        return self.world.click_prob(users).gather(1, slate).sum(1).mean().item(), self.world.best(users)

    def run(self, until):
        window = []
        while self.step < until:
            loss, reward, entropy = self.update()
            window.append(reward)
            if self.step % 35 == 0:
                print(
                    f"step {self.step:4d} loss {loss:+.4f} clicks {sum(window) / len(window):.3f} entropy {entropy:.3f}"
                )
                window = []


def main():
    torch.manual_seed(10)
    cfg = SlateConfig()
    world = ClickWorld(cfg, seed=3)
    agent = Agent(cfg, world)
    print("greedy clicks per slate %.3f, ideal %.3f" % agent.greedy_value())
    agent.run(cfg.interrupt_at)
    blob = agent.save()
    print(f"interrupted at step {agent.step}, checkpoint of {len(blob) // 1024} KiB")
    agent = Agent(cfg, world)
    agent.load(blob)
    agent.run(cfg.steps)
    print("greedy clicks per slate %.3f, ideal %.3f" % agent.greedy_value())


if __name__ == "__main__":
    main()

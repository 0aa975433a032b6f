# expect: healthy
# symptom: the printed policy loss is about zero from the first to the last step and the KL to the reference rises above one (looks as if nothing were learnt)
# axis: loss
"""Group-relative policy optimisation on a toy task: learn from rewards alone to write the prompt backwards."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    vocab: int = 6
    length: int = 4
    prompts: int = 48
    group: int = 12
    steps: int = 300
    lr: float = 2e-3
    kl: float = 0.002
    clip: float = 0.2
    seed: int = 13


class Policy(nn.Module):
    def __init__(self, cfg, dim=96):
        super().__init__()
        self.cfg = cfg
        self.tok = nn.Embedding(cfg.vocab + 1, dim)
        self.pos = nn.Embedding(cfg.length, dim)
        self.ctx = nn.Linear(cfg.length * dim, dim)
        self.cell = nn.GRUCell(2 * dim, dim)
        self.head = nn.Linear(dim, cfg.vocab)

    def _run(self, prompt, answer=None):
        n = prompt.shape[0]
        ctx = torch.tanh(self.ctx(self.tok(prompt).flatten(1)))
        h, prev = ctx, torch.full((n,), self.cfg.vocab)
        tokens, logps = [], []
        for k in range(self.cfg.length):
            h = self.cell(torch.cat([self.tok(prev) + self.pos.weight[k], ctx], dim=1), h)
            logp = F.log_softmax(self.head(h), dim=1)
            prev = torch.multinomial(logp.exp(), 1).squeeze(1) if answer is None else answer[:, k]
            tokens.append(prev)
            logps.append(logp.gather(1, prev[:, None]).squeeze(1))
        return torch.stack(tokens, 1), torch.stack(logps, 1)

    @torch.no_grad()
    def sample(self, prompt):
        return self._run(prompt)

    def logprob(self, prompt, answer):
        return self._run(prompt, answer)[1]


def reward_fn(prompt, answer):
    return (answer == prompt.flip(1)).float().mean(1)


def main():
    cfg = Config()
    torch.set_num_threads(1)
    torch.manual_seed(cfg.seed)
    policy, reference = Policy(cfg), Policy(cfg)
    reference.load_state_dict(policy.state_dict())
    reference.requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=cfg.lr, weight_decay=0.0)

    for step in range(1, cfg.steps + 1):
        prompt = torch.randint(cfg.vocab, (cfg.prompts, cfg.length)).repeat_interleave(cfg.group, 0)
        answer, old_logp = policy.sample(prompt)
        reward = reward_fn(prompt, answer)
        grouped = reward.view(cfg.prompts, cfg.group)
        adv = ((grouped - grouped.mean(1, keepdim=True)) / (grouped.std(1, keepdim=True) + 1e-4)).flatten()

        logp = policy.logprob(prompt, answer)
        ratio = (logp - old_logp).exp()
        a = adv[:, None]
        surrogate = torch.min(ratio * a, ratio.clamp(1 - cfg.clip, 1 + cfg.clip) * a)
        with torch.no_grad():
            ref_logp = reference.logprob(prompt, answer)
        gap = (ref_logp - logp).clamp(max=10)
        kl = gap.exp() - gap - 1
        loss = -(surrogate - cfg.kl * kl).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(
                f"step {step:3d} loss {loss.item():+.5f} reward {reward.mean().item():.3f} kl {kl.mean().item():.3f}",
                flush=True,
            )

    prompt = torch.randint(cfg.vocab, (1000, cfg.length))
    print("final reward", round(reward_fn(prompt, policy.sample(prompt)[0]).mean().item(), 3))


if __name__ == "__main__":
    main()

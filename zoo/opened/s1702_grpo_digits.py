# expect: sick
# symptom: reward climbs well, then loss and policy turn nan in a single update and never come back
# axis: loss
# cause: group-normalised advantages divide by the group's reward standard deviation without epsilon; once every sample of a prompt gets the same reward the std is 0 and the advantage 0/0 = nan
# says: (std|standard deviation|deviation|variance|spread|denominator).{0,80}(zero|0\b|eps|no epsilon|identical|same|vanish)|(same|identical|equal|constant|uniform|tied|all).{0,60}reward.{0,100}(std|deviation|nan|divi|zero|0)|advantage.{0,80}(divi|eps|0 ?/ ?0|std|normali[sz])|(divi\w+).{0,40}(zero|0\b).{0,60}(group|advantage|reward|std)|0 ?/ ?0
# onset_step: 48
# fix: divide by (std + 1e-4), or skip groups whose rewards are all the same
# mended: adds 1e-4 to the group standard deviation
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SEED = 3
np.random.seed(SEED)
torch.manual_seed(SEED)

VOCAB = 12  # ten digits, '=' and bos
EQ, BOS = 10, 11
PROMPT_LEN = 6
ANSWER_LEN = 6
PROMPTS_PER_STEP = 8
GROUP = 8
CLIP = 0.2
INNER_EPOCHS = 2
ADV_EPS = 1e-4 if MENDED else 0.0


class PolicyLM(nn.Module):
    """Small decoder: reads the prompt, writes the answer one digit at a time."""

    def __init__(self, d=48, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(0.1 * torch.randn(PROMPT_LEN + ANSWER_LEN + 2, d))
        block = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, 10)

    def forward(self, ids):
        n = ids.size(1)
        mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        x = self.tok(ids) + self.pos[:n]
        return self.head(self.norm(self.body(x, mask=mask)))


def make_prompts(n, gen):
    digits = torch.randint(0, 10, (n, PROMPT_LEN), generator=gen)
    bos = torch.full((n, 1), BOS)
    eq = torch.full((n, 1), EQ)
    return torch.cat([bos, digits, eq], dim=1), digits


@torch.no_grad()
def rollout(policy, prompts):
    ids = prompts
    logps = []
    for _ in range(ANSWER_LEN):
        logits = policy(ids)[:, -1]
        probs = F.softmax(logits, dim=-1)
        nxt = torch.multinomial(probs.nan_to_num(nan=0.1).clamp_min(1e-9), 1)
        logps.append(torch.log(probs.gather(1, nxt)))
        ids = torch.cat([ids, nxt], dim=1)
    return ids, torch.cat(logps, dim=1)


def reward_fn(answers, digits):
    """Share of places right (each digit is to be answered by its successor), and a small nearness bonus."""
    want = (digits + 1) % 10
    right = (answers == want).float().mean(dim=1)
    near = 1.0 - (answers - want).abs().float().mean(dim=1) / 9.0
    return right + 0.2 * near


def sft_warmup(policy, gen, steps=220):
    """A short supervised start, as usual before the reward phase."""
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-3)
    for step in range(steps):
        prompts, digits = make_prompts(48, gen)
        want = (digits + 1) % 10
        noise = torch.rand(want.shape, generator=gen) < 0.35
        want = torch.where(noise, torch.randint(0, 10, want.shape, generator=gen), want)
        logits = policy(torch.cat([prompts, want[:, :-1]], dim=1))[:, PROMPT_LEN + 1 :]
        loss = F.cross_entropy(logits.reshape(-1, 10), want.reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"sft {step} loss {loss.item():.4f}")


def main():
    gen = torch.Generator().manual_seed(SEED)
    policy = PolicyLM()
    sft_warmup(policy, gen)
    opt = torch.optim.AdamW(policy.parameters(), lr=3e-4, weight_decay=0.0)
    t0 = time.time()
    for step in range(130):
        prompts, digits = make_prompts(PROMPTS_PER_STEP, gen)
        prompts = prompts.repeat_interleave(GROUP, dim=0)
        digits = digits.repeat_interleave(GROUP, dim=0)
        ids, old_logp = rollout(policy, prompts)
        answers = ids[:, PROMPT_LEN + 2 :]
        rewards = reward_fn(answers, digits)
        groups = rewards.view(PROMPTS_PER_STEP, GROUP)
        centred = groups - groups.mean(dim=1, keepdim=True)
        adv = (centred / (groups.std(dim=1, keepdim=True) + ADV_EPS)).reshape(-1, 1)
        for _ in range(INNER_EPOCHS):
            logits = policy(ids[:, :-1])[:, PROMPT_LEN + 1 :]
            logp = F.log_softmax(logits, dim=-1).gather(2, answers.unsqueeze(-1)).squeeze(-1)
            ratio = torch.exp(logp - old_logp)
            loss = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            opt.zero_grad()
            loss.backward()
            gnorm = nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
        if step % 10 == 0:
            print(
                f"step {step} loss {loss.item():.5f} reward {rewards.mean().item():.4f} "
                f"grad {gnorm.item():.3f} t {time.time() - t0:.1f}"
            )


if __name__ == "__main__":
    main()

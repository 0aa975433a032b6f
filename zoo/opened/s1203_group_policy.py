# expect: sick
# symptom: reward rises, then from one step to the next (step 36) the loss is nan and reward stays at the value of a constant answer
# axis: loss
# cause: group-relative advantages divide by the standard deviation of the rewards in the group; once all samples of a prompt earn the same reward the std is 0 and 0/0 gives NaN advantages (no eps)
# says: (\bstd\b|standard deviation|variance|spread|advantage|reward).{0,140}(zero|\b0\b|eps|identical|same reward|all equal|divi|constant)|(identical|equal|same|tied|constant).{0,30}rewards?|divi\w*.{0,30}(zero|\bstd\b)
# onset_step: 36
# fix: divide by (std + 1e-4), or skip groups with no spread in their rewards
# mended: eps added to the std
"""Policy optimisation with group baselines: a small recurrent policy learns to write the prompt backwards."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(17)

VOCAB, LENGTH, PROMPTS, GROUP, ITERS, INNER, CLIP = 6, 5, 20, 10, 260, 2, 0.2


class Policy(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB + 1, d)
        self.enc = nn.GRU(d, d, batch_first=True)
        self.dec = nn.GRUCell(d, d)
        self.att = nn.Linear(d, d, bias=False)
        self.slot = nn.Parameter(torch.randn(LENGTH, d) * 0.3)
        self.out = nn.Sequential(nn.Linear(2 * d, d), nn.Tanh(), nn.Linear(d, VOCAB))

    def roll(self, prompt, actions=None):
        mem, h = self.enc(self.emb(prompt))
        h = h[0]
        tok = torch.full((len(prompt),), VOCAB)
        logps, toks, ents = [], [], []
        for t in range(LENGTH):
            h = self.dec(self.emb(tok) + self.slot[t], h)
            w = torch.softmax((mem @ self.att(h)[:, :, None]).squeeze(-1), -1)
            ctx = (w[:, :, None] * mem).sum(1)
            logp = F.log_softmax(self.out(torch.cat([h, ctx], -1)), -1)
            if actions is None:
                u = torch.rand_like(logp).clamp_min(1e-9)
                tok = (logp.detach() - torch.log(-torch.log(u))).argmax(-1)
            else:
                tok = actions[:, t]
            toks.append(tok)
            logps.append(logp.gather(1, tok[:, None]).squeeze(1))
            ents.append(-(logp.exp() * logp).sum(-1))
        return torch.stack(toks, 1), torch.stack(logps, 1), torch.stack(ents, 1)


WEIGHTS = torch.tensor([1.00, 1.13, 1.29, 1.47, 1.71])
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def score(prompt, answer):
    """Weighted share of right letters, later letters count a little more."""
    return ((answer == prompt.flip(1)).float() * WEIGHTS).sum(1)


def group_advantages(rewards):
    r = rewards.view(PROMPTS, GROUP)
    mean = r.mean(1, keepdim=True)
    std = r.std(1, keepdim=True)
    if MENDED:
        std = std + 1e-4
    return ((r - mean) / std).view(-1)


def main():
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    step, t0 = 0, time.time()
    for it in range(ITERS):
        prompt = torch.randint(0, VOCAB, (PROMPTS, LENGTH)).repeat_interleave(GROUP, 0)
        with torch.no_grad():
            actions, old_logp, _ = policy.roll(prompt)
        rewards = score(prompt, actions)
        adv = group_advantages(rewards)[:, None]
        for _ in range(INNER):
            _, logp, ent = policy.roll(prompt, actions)
            ratio = (logp - old_logp).exp()
            pg = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv).mean()
            loss = pg - 0.02 * ent.mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            step += 1
        if it % 5 == 0 or it == ITERS - 1:
            print(
                f"step {step:4d} loss {loss.item():+.4f} reward {rewards.mean():.3f} entropy {ent.mean().item():.3f}",
                flush=True,
            )
    print(f"final reward {rewards.mean():.3f}   {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

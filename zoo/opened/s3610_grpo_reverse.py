# expect: sick
# symptom: the reward rises for some steps, then loss and all weights become NaN
# axis: loss
# cause: group advantages are divided by the std of the group's rewards, which is 0 if all samples score the same
# says: (std|deviation|varian|advantage|group).*(zero|\b0\b|eps|equal|same|identical)|(same|equal).*reward
# onset_step: 113
# fix: add a small epsilon to the standard deviation of the group before the division
# mended: the script applies that change if the environment has MENDED=1
"""GRPO on a tiny policy: reverse a string of letters. Short SFT stage first, then RL with group rewards."""

import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)

V, N, SEP = 13, 5, 12  # letters 0..11, separator
LEN = 2 * N + 1
STD_FLOOR = 1e-4 if MENDED else 0.0


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.ff = nn.Sequential(nn.Linear(d, 3 * d), nn.GELU(), nn.Linear(3 * d, d))

    def forward(self, x):
        B, T, D = x.shape
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(B, T, D))
        return x + self.ff(self.n2(x))


class Policy(nn.Module):
    def __init__(self, d=64, h=4, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, d), nn.Embedding(LEN, d)
        self.blocks = nn.ModuleList(Block(d, h) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, V)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))


def prompts(n):
    p = torch.randint(0, 12, (n, N))
    return torch.cat([p, torch.full((n, 1), SEP)], 1), p.flip(1)


@torch.no_grad()
def rollout(policy, ids, greedy=False):
    for _ in range(N):
        logits = policy(ids)[:, -1]
        nxt = logits.argmax(-1) if greedy else torch.multinomial(logits.softmax(-1), 1).squeeze(1)
        ids = torch.cat([ids, nxt[:, None]], 1)
    return ids


def answer_logp(policy, ids):
    lp = policy(ids[:, :-1]).log_softmax(-1)[:, N:]
    return lp.gather(-1, ids[:, N + 1 :, None]).squeeze(-1)


def reward_fn(ids, ref):
    return (ids[:, N + 1 :] == ref).float().mean(1)


@torch.no_grad()
def evaluate(policy):
    g = torch.get_rng_state()
    torch.manual_seed(99)
    p, ref = prompts(256)
    r = reward_fn(rollout(policy, p, greedy=True), ref).mean().item()
    torch.set_rng_state(g)
    return r


policy = Policy()
opt = torch.optim.AdamW(policy.parameters(), lr=1e-3, weight_decay=0.0)
for it in range(30):
    p, ref = prompts(64)
    loss = -answer_logp(policy, torch.cat([p, ref], 1)).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0:
        print(f"sft {it:4d} loss {loss.item():.4f}")
print(f"after sft: greedy reward {evaluate(policy):.3f}")

reference = Policy()
reference.load_state_dict(policy.state_dict())
reference.requires_grad_(False)
for g in opt.param_groups:
    g["lr"] = 5e-4
GROUP, PROMPTS, BETA = 8, 12, 0.01
for it in range(200):
    p, ref = prompts(PROMPTS)
    p, ref = p.repeat_interleave(GROUP, 0), ref.repeat_interleave(GROUP, 0)
    ids = rollout(policy, p)
    r = reward_fn(ids, ref).view(PROMPTS, GROUP)
    adv = (r - r.mean(1, keepdim=True)) / (r.std(1, keepdim=True) + STD_FLOOR)
    logp = answer_logp(policy, ids)
    with torch.no_grad():
        ref_logp = answer_logp(reference, ids)
    diff = ref_logp - logp
    kl = diff.exp() - diff - 1
    ratio = (logp - logp.detach()).exp()
    loss = -(ratio * adv.view(-1, 1)).mean() + BETA * kl.mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()
    if it % 10 == 0:
        print(f"rl {it:4d} loss {loss.item():+.4f} reward {r.mean().item():.3f} kl {kl.mean().item():.4f}")
    if not torch.isfinite(loss):
        print(f"rl {it:4d} loss {loss.item()}, stopping")
        break
print(f"final: greedy reward {evaluate(policy):.3f}")

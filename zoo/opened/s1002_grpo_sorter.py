# expect: sick
# symptom: reward climbs well for many steps, then the loss is nan from one step to the next and the reward falls back
# axis: loss
# cause: the group-normalised advantage divides by the standard deviation of the group's rewards without an eps; as soon as all completions of one prompt get the same reward, std is 0 and the advantage is 0/0
# says: (std|standard deviation|variance|divi(de|sion)|normali[sz]\w*|0 ?/ ?0).{0,150}(zero|\b0\b|eps|same|identical|equal|constant|degenerate)|(same|identical|equal|zero|no|constant|degenerate)[- ](reward|variance|std|spread|advantage|return)|(reward|advantage|group)s?.{0,100}(std|standard deviation|identical|all (the )?(same|equal)|zero variance|0/0)|missing eps|without (an )?eps
# onset_step: 231
# fix: (r - mean) / (std + 1e-4), or skip groups whose rewards are all the same
# mended: the denominator becomes std + 1e-4
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)

VOCAB, LEN = 10, 6  # digits; prompt of LEN digits, the answer is the sorted prompt
SEP = VOCAB
GROUP, PROMPTS = 8, 8
KL_COEF, CLIP = 0.01, 0.2


class Policy(nn.Module):
    def __init__(self, d=64, layers=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB + 1, d)
        self.pos = nn.Embedding(2 * LEN + 1, d)
        block = nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.ln = nn.LayerNorm(d)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, ids):
        n = ids.size(1)
        mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        x = self.tok(ids) + self.pos(torch.arange(n))
        return self.head(self.ln(self.body(x, mask=mask)))


def prompts(n):
    return torch.randint(0, VOCAB, (n, LEN))


@torch.no_grad()
def generate(policy, prompt):
    ids = torch.cat([prompt, torch.full((len(prompt), 1), SEP)], 1)
    for _ in range(LEN):
        logits = policy(ids)[:, -1]
        gumbel = -torch.log(-torch.log(torch.rand_like(logits).clamp(1e-9, 1 - 1e-7)))
        ids = torch.cat([ids, (logits + gumbel).argmax(-1, keepdim=True)], 1)
    return ids


def token_logprobs(policy, ids):
    logp = F.log_softmax(policy(ids[:, :-1])[:, LEN:], -1)
    return logp.gather(-1, ids[:, LEN + 1 :].unsqueeze(-1)).squeeze(-1)


def reward_fn(ids):
    want = ids[:, :LEN].sort(1).values
    got = ids[:, LEN + 1 :]
    return 1.0 - (want - got).abs().float().mean(1) / 3.0


def advantages(rewards):
    g = rewards.view(PROMPTS, GROUP)
    mean = g.mean(1, keepdim=True)
    std = g.std(1, keepdim=True)
    if MENDED:
        std = std + 1e-4
    return ((g - mean) / std).reshape(-1)


def warm_start(policy, steps=85):
    """short supervised phase on few examples, so that RL starts from something readable"""
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    for i in range(steps):
        p = prompts(48)
        ids = torch.cat([p, torch.full((48, 1), SEP), p.sort(1).values], 1)
        loss = -token_logprobs(policy, ids).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"sft done, loss {loss.item():.3f}")
    return steps


def main():
    policy, ref = Policy(), Policy()
    updates = warm_start(policy)
    ref.load_state_dict(policy.state_dict())
    for p in ref.parameters():
        p.requires_grad_(False)
    opt = torch.optim.AdamW(policy.parameters(), lr=2e-4, weight_decay=0.0)
    t0 = time.time()
    for it in range(1, 201):
        ids = generate(policy, prompts(PROMPTS).repeat_interleave(GROUP, 0))
        rewards = reward_fn(ids)
        adv = advantages(rewards).unsqueeze(1)
        with torch.no_grad():
            old = token_logprobs(policy, ids)
            base = token_logprobs(ref, ids)
        for _ in range(2):
            new = token_logprobs(policy, ids)
            ratio = (new - old).exp()
            pg = -torch.min(ratio * adv, ratio.clamp(1 - CLIP, 1 + CLIP) * adv)
            kl = (base - new).exp() - (base - new) - 1
            loss = (pg + KL_COEF * kl).mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
            opt.step()
            updates += 1
        if it % 5 == 0 or it == 1:
            exact = (rewards > 0.999).float().mean()
            print(
                f"iter {it:4d} updates {updates:4d} loss {loss.item():+.4f} reward {rewards.mean().item():.3f} exact {exact.item():.2f} "
                f"kl {kl.mean().item():.4f} t {time.time() - t0:.1f}s",
                flush=True,
            )


main()

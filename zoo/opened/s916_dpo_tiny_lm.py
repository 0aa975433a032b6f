# expect: sick
# symptom: the DPO loss sits at 0.693 and the reward margin at 0 for the whole run while the policy's likelihoods drift down without limit and its text degenerates
# axis: loss
# cause: the reference model is the policy itself (no copy was made), so the log-ratio against the reference is always zero and nothing anchors the policy
# says: (ref\w*( model)?\b.{0,60}(same (object|module|model|weights|instance|param\w*)|alias\w*|is the policy|shares?|identical|not (a )?(copy|copied|frozen)|moves with|tracks|updated|trained|deep.?copy)|(same|shared?|identical|alias\w*).{0,50}\bref\w*|deep.?copy|policy.{0,30}(is|as) (its own|the) ref\w*|log.?ratio\w*.{0,30}(always|constant\w*|identically|is|stays?|are) (zero|0))
# onset_step: 1
# fix: ref_model = copy.deepcopy(policy).eval() before the preference tuning
# mended: deep-copies the reference when MENDED=1
import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, PROMPT, RESP, DIM = 32, 4, 8, 64


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(PROMPT + RESP, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        t = ids.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(t)
        x = self.emb(ids) + self.pos(torch.arange(t))
        return self.head(self.body(x, mask=mask, is_causal=True))


def continuation(prompt, g, stride):
    """Counts on from the last prompt token; sometimes repeats a token."""
    out, cur = [], prompt[:, -1]
    for _ in range(RESP):
        cur = torch.where(torch.rand(len(cur), generator=g) < 0.15, cur, (cur + stride) % VOCAB)
        out.append(cur)
    return torch.stack(out, 1)


def prompts(n, g):
    return torch.randint(0, VOCAB, (n, PROMPT), generator=g)


def sft_batch(n, g):
    p = prompts(n, g)
    up, down = continuation(p, g, 1), continuation(p, g, -1)
    pick = torch.rand(n, 1, generator=g) < 0.5
    return torch.cat([p, torch.where(pick, up, down)], 1)


def preference_batch(n, g):
    p = prompts(n, g)
    chosen = torch.cat([p, continuation(p, g, 1)], 1)
    rejected = torch.cat([p, continuation(p, g, -1)], 1)
    return chosen, rejected


def response_logp(model, ids):
    logp = F.log_softmax(model(ids[:, :-1]), -1)
    tok = logp.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1)
    return tok[:, PROMPT - 1 :].sum(-1)


def sft(model, g, steps=250):
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        ids = sft_batch(64, g)
        logits = model(ids[:, :-1])[:, PROMPT - 1 :]
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), ids[:, PROMPT:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"[sft] step {step} loss {loss.item():.4f}")


def dpo(policy, ref_model, g, steps=300, beta=0.1, lr=1e-4):
    opt = torch.optim.AdamW(policy.parameters(), lr=lr)
    for step in range(1, steps + 1):
        chosen, rejected = preference_batch(32, g)
        pi_c, pi_r = response_logp(policy, chosen), response_logp(policy, rejected)
        with torch.no_grad():
            ref_c, ref_r = response_logp(ref_model, chosen), response_logp(ref_model, rejected)
        r_c, r_r = beta * (pi_c - ref_c), beta * (pi_r - ref_r)
        loss = -F.logsigmoid(r_c - r_r).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        opt.step()
        if step % 30 == 0 or step == 1:
            print(
                f"[dpo] step {step} loss {loss.item():.4f} margin {(r_c - r_r).mean().item():.3f} "
                f"logp chosen {pi_c.mean().item():.1f} rejected {pi_r.mean().item():.1f}"
            )


@torch.no_grad()
def preferred_share(model, g):
    ids = prompts(256, g)
    for _ in range(RESP):
        nxt = torch.distributions.Categorical(logits=model(ids)[:, -1]).sample()
        ids = torch.cat([ids, nxt[:, None]], 1)
    d = (ids[:, PROMPT:] - ids[:, PROMPT - 1 : -1]) % VOCAB
    return ((d == 0) | (d == 1)).float().mean().item(), (d == 1).float().mean().item()


def main():
    torch.manual_seed(5)
    g = torch.Generator().manual_seed(5)
    policy = TinyLM()
    sft(policy, g)
    print("before dpo: preferred tokens %.3f, counting on %.3f" % preferred_share(policy, g))
    ref_model = copy.deepcopy(policy).eval() if os.environ.get("MENDED") == "1" else policy
    dpo(policy, ref_model, g)
    chosen, _ = preference_batch(256, g)
    with torch.no_grad():
        print("after dpo: chosen logp %.2f" % response_logp(policy, chosen).mean().item())
    print("after dpo: preferred tokens %.3f, counting on %.3f" % preferred_share(policy, g))


if __name__ == "__main__":
    main()

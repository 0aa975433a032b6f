# expect: sick
# symptom: the DPO loss stays at exactly 0.6931 with margins of 0 while the policy drifts and its answers turn to rubbish
# axis: loss
# cause: the reference model is a shallow copy that shares its parameters with the policy, so it moves along and the log-ratio between policy and reference is always zero
# says: ((ref\w*).{0,80}(shar|alias|same (object|model|param|weight|tensor|module)|shallow|identical|not (frozen|a (deep|real|separate|true) ?copy)|moves? (along|with)|tied|copy\.copy|is the policy|deep.?copy))|((shar\w*|alias\w*|shallow|same (param|weight|object|tensor|module)\w*|deep.?copy).{0,80}ref)|log.?ratio.{0,40}(always|identically|exactly|constant).{0,15}(0|zero)
# onset_step: 202
# fix: copy.deepcopy instead of copy.copy for the reference model
# mended: the reference is made by copy.deepcopy
import copy
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(7)
random.seed(7)
MENDED = os.environ.get("MENDED") == "1"

# prompts ask for a list of letters to be repeated; annotators prefer short answers that end with a full stop
VOCAB = ["<pad>", "<eos>", ":", ".", "!"] + list("abcdefghij")
ID = {c: i for i, c in enumerate(VOCAB)}
PLEN, RLEN = 5, 7


def prompt():
    return [random.choice("abcdefghij") for _ in range(4)] + [":"]


def encode(p, r):
    r = r + ["<eos>"]
    return [ID[c] for c in p + r + ["<pad>"] * (RLEN - len(r))]


def answer(p, polite):
    return p[:4] + (["."] if polite else ["!", "!"])


def sft_batch(n):
    rows = []
    for _ in range(n):
        p = prompt()
        rows.append(encode(p, answer(p, random.random() < 0.35)))
    return torch.tensor(rows)


def pref_batch(n):
    chosen, rejected = [], []
    for _ in range(n):
        p = prompt()
        chosen.append(encode(p, answer(p, True)))
        rejected.append(encode(p, answer(p, False)))
    return torch.tensor(chosen), torch.tensor(rejected)


class TinyLM(nn.Module):
    def __init__(self, d=48, layers=2):
        super().__init__()
        self.tok, self.pos = nn.Embedding(len(VOCAB), d), nn.Embedding(PLEN + RLEN, d)
        layer = nn.TransformerEncoderLayer(d, 4, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, len(VOCAB))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        h = self.tok(x) + self.pos(torch.arange(x.size(1)))
        return self.head(self.norm(self.body(h, mask=mask, is_causal=True)))

    @torch.no_grad()
    def generate(self, p):
        for _ in range(RLEN):
            p = torch.cat([p, self(p)[:, -1].argmax(-1, keepdim=True)], 1)
        return p


def sequence_logps(model, x):
    logp = F.log_softmax(model(x[:, :-1]), -1).gather(-1, x[:, 1:, None]).squeeze(-1)
    keep = (x[:, 1:] != 0).float()
    keep[:, : PLEN - 1] = 0
    return (logp * keep).sum(-1)


def dpo_loss(policy, ref, chosen, rejected, beta=0.5):
    pi_c, pi_r = sequence_logps(policy, chosen), sequence_logps(policy, rejected)
    with torch.no_grad():
        ref_c, ref_r = sequence_logps(ref, chosen), sequence_logps(ref, rejected)
    reward_c, reward_r = beta * (pi_c - ref_c), beta * (pi_r - ref_r)
    loss = -F.logsigmoid(reward_c - reward_r).mean()
    return loss, (reward_c - reward_r).mean().item(), pi_c.mean().item(), pi_r.mean().item()


def quality(model, n=200):
    """Share of held-out prompts that are answered by the right letters and a full stop."""
    ps = [prompt() for _ in range(n)]
    out = model.generate(torch.tensor([[ID[c] for c in p] for p in ps])).tolist()
    good = 0
    for p, o in zip(ps, out):
        toks = [VOCAB[i] for i in o[PLEN:]]
        good += toks[: toks.index("<eos>")] == answer(p, True) if "<eos>" in toks else 0
    return good / n


def sft(model, steps=200):
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for s in range(steps):
        x = sft_batch(48)
        logits = model(x[:, :-1])[:, PLEN - 1 :]
        loss = F.cross_entropy(logits.flatten(0, 1), x[:, PLEN:].flatten(), ignore_index=0)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if (s + 1) % 50 == 0:
            print(f"[sft] {s + 1} loss {loss.item():.4f}", flush=True)


policy = TinyLM()
sft(policy)
print(f"after sft: good answers {quality(policy):.2f}")

if MENDED:
    ref = copy.deepcopy(policy)
else:
    ref = copy.copy(policy)
ref.eval()

opt = torch.optim.AdamW(policy.parameters(), lr=1e-4, weight_decay=0.0)
for step in range(1, 301):
    loss, margin, lc, lr_ = dpo_loss(policy, ref, *pref_batch(32))
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
    opt.step()
    if step % 50 == 0 or step == 1:
        print(
            f"[dpo] {step} loss {loss.item():.4f} margin {margin:.4f} logp chosen {lc:.2f} rejected {lr_:.2f}",
            flush=True,
        )
print(f"after dpo: good answers {quality(policy):.2f}")

# expect: healthy
# symptom: zero_grad only each 4th micro batch, and the loss stays at a high floor; resembles missing zero_grad
# axis: optimizer
"""Next event model for server logs: small causal transformer, summed NLL over 4 micro batches per update."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
EVENTS, PAD, CONTEXT, ACCUM, MICRO = 30, 30, 24, 4, 14


class LogSource:
    """Second order chain over events; after each pair four followers are possible."""

    def __init__(self):
        g = torch.Generator().manual_seed(99)
        self.follow = torch.randint(0, EVENTS, (EVENTS, 3, 4), generator=g)
        self.probs = torch.tensor([0.4, 0.3, 0.2, 0.1])

    def draw(self, n, gen):
        seq = torch.zeros(n, CONTEXT + 1, dtype=torch.long)
        seq[:, :2] = torch.randint(0, EVENTS, (n, 2), generator=gen)
        for t in range(2, CONTEXT + 1):
            pick = torch.multinomial(self.probs, n, replacement=True, generator=gen)
            seq[:, t] = self.follow[seq[:, t - 1], seq[:, t - 2] % 3, pick]
        lengths = torch.randint(CONTEXT // 2, CONTEXT + 2, (n,), generator=gen)
        seq[torch.arange(CONTEXT + 1) >= lengths.unsqueeze(1)] = PAD
        return seq[:, :-1], seq[:, 1:]


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.heads = heads

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        att = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(att.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.ln2(x))


class EventLM(nn.Module):
    def __init__(self, dim=48, heads=4, depth=2):
        super().__init__()
        self.tok = nn.Embedding(EVENTS + 1, dim, padding_idx=PAD)
        self.pos = nn.Parameter(torch.randn(CONTEXT, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.ln = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, EVENTS)

    def forward(self, ids):
        h = self.blocks(self.tok(ids) + self.pos[: ids.shape[1]])
        return F.log_softmax(self.head(self.ln(h)), dim=-1)


def summed_nll(model, ids, nxt):
    return F.nll_loss(model(ids).flatten(0, 1), nxt.flatten(), ignore_index=PAD, reduction="sum")


@torch.no_grad()
def perplexity(model, ids, nxt):
    model.eval()
    nll = summed_nll(model, ids, nxt).item() / (nxt != PAD).sum().item()
    model.train()
    return math.exp(nll)


def main():
    torch.manual_seed(37)
    source, gen = LogSource(), torch.Generator().manual_seed(1)
    val = source.draw(256, torch.Generator().manual_seed(2))
    floor = math.exp(-(source.probs * source.probs.log()).sum().item())
    print(f"perplexity floor of the source from the third event on: about {floor:.2f}")
    model = EventLM()
    opt = torch.optim.AdamW(model.parameters(), lr=4e-3, betas=(0.9, 0.98), weight_decay=0.01)
    updates = 400
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=updates, pct_start=0.1)
    tokens, nll_sum, update = 0, 0.0, 0
    for micro in range(1, updates * ACCUM + 1):
        ids, nxt = source.draw(MICRO, gen)
        nll = summed_nll(model, ids, nxt)
        nll.backward()
        tokens += (nxt != PAD).sum().item()
        nll_sum += nll.item()
        if micro % ACCUM == 0:
            for p in model.parameters():
                p.grad /= tokens
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
            update += 1
            if update % 20 == 0:
                print(f"update {update:4d}  nll/token {nll_sum / tokens:.4f}")
            tokens, nll_sum = 0, 0.0
            if update % 100 == 0:
                print(f"  val perplexity {perplexity(model, *val):.3f}")


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: resembles an oscillating run: warm restarts of the learning rate make bumps in the loss
# axis: schedule
"""Mixture-of-experts language model on a tag grammar, cosine warm restarts, small balance loss."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(77)

VOCAB, BLOCK, DIM, EXPERTS, TOP_K = 48, 24, 48, 4, 2
STEPS, BATCH, LR, CYCLE = 360, 16, 4e-3, 120


class Grammar:
    """Four dialects; within each the next token depends on the current one, with two variants."""

    def __init__(self, seed):
        self.gen = torch.Generator().manual_seed(seed)
        self.table = torch.randint(4, VOCAB, (4, VOCAB, 2), generator=self.gen)

    def batch(self, n):
        dialect = torch.randint(0, 4, (n,), generator=self.gen)
        cur = torch.randint(4, VOCAB, (n,), generator=self.gen)
        seq = [dialect, cur]  # first token names the dialect
        for _ in range(BLOCK - 1):
            rare = (torch.rand(n, generator=self.gen) < 0.15).long()
            cur = self.table[dialect, cur, rare]
            seq.append(cur)
        return torch.stack(seq, 1)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(DIM, EXPERTS, bias=False)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM)) for _ in range(EXPERTS)]
        )

    def forward(self, x):
        flat = x.reshape(-1, DIM)
        probs = self.router(flat).softmax(-1)
        top, idx = probs.topk(TOP_K, dim=-1)
        top = top / top.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for e, expert in enumerate(self.experts):
            rows, slot = (idx == e).nonzero(as_tuple=True)
            out = out.index_add(0, rows, top[rows, slot, None] * expert(flat[rows]))
        used = F.one_hot(idx, EXPERTS).float().sum(1).mean(0) / TOP_K
        balance = EXPERTS * (used * probs.mean(0)).sum()
        return out.view_as(x), balance, used


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.attn = nn.MultiheadAttention(DIM, 4, batch_first=True)
        self.moe = MoE()

    def forward(self, x):
        t = x.shape[1]
        hide = torch.triu(torch.ones(t, t, dtype=torch.bool), diagonal=1)
        h = self.n1(x)
        x = x + self.attn(h, h, h, attn_mask=hide, need_weights=False)[0]
        y, balance, used = self.moe(self.n2(x))
        return x + y, balance, used


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(VOCAB, DIM), nn.Embedding(BLOCK, DIM)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.norm, self.head = nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)

    def forward(self, ids):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        balance, used = 0.0, []
        for block in self.blocks:
            x, b, u = block(x)
            balance = balance + b
            used.append(u)
        return self.head(self.norm(x)), balance / len(self.blocks), used


def main():
    data = Grammar(5)
    model = LM()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=LR / 50)
    for step in range(STEPS):
        seq = data.batch(BATCH)
        logits, balance, used = model(seq[:, :-1])
        lm_loss = F.cross_entropy(logits.flatten(0, 1), seq[:, 1:].flatten())
        loss = lm_loss + 0.01 * balance
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 15 == 0:
            share = " ".join(f"{u:.2f}" for u in used[0].tolist())
            print(f"{step:4d} lm {lm_loss.item():.4f} lr {sched.get_last_lr()[0]:.1e} experts {share}")
    model.eval()
    with torch.no_grad():
        seq = data.batch(100)
        val = F.cross_entropy(model(seq[:, :-1])[0].flatten(0, 1), seq[:, 1:].flatten()).item()
    print(f"final lm {lm_loss.item():.4f} | val {val:.4f}")


if __name__ == "__main__":
    main()

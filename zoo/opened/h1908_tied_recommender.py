# expect: healthy
# symptom: two optimizers with sparse gradients, most embedding rows untouched in a step, weights shared between input and output, checkpointed blocks and loss divided over micro-batches (resembles missing zero_grad, a double-updated tied weight or dead embeddings)
# axis: optimizer
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

ITEMS, GROUPS, HIST = 800, 20, 8


def sessions(n, gen):
    """People walk through groups of items in a fixed cycle with some noise."""
    first = torch.randint(GROUPS, (n, 1), generator=gen)
    stride = torch.randint(1, 3, (n, 1), generator=gen)
    group = (first + stride * torch.arange(HIST + 1)) % GROUPS
    # low ids in a group are far more popular
    inner = (torch.rand(n, HIST + 1, generator=gen) ** 3 * (ITEMS // GROUPS)).long()
    return group * (ITEMS // GROUPS) + inner


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.ff = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff(x)


class NextItem(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.items = nn.Embedding(ITEMS, dim, sparse=True)
        nn.init.normal_(self.items.weight, std=0.05)
        self.place = nn.Parameter(torch.randn(HIST, dim) * 0.1)
        self.blocks = nn.ModuleList([Block(dim), Block(dim)])
        self.final = nn.LayerNorm(dim)

    def encode(self, hist):
        x = self.items(hist) * 20**0.5 + self.place
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=False)
        return self.final(x[:, -1])

    def forward(self, hist, candidates):
        return (self.encode(hist)[:, None] * self.items(candidates)).sum(-1)


def micro_loss(model, seq, gen, negatives=50):
    rivals = torch.randint(ITEMS, (len(seq), negatives), generator=gen)
    cand = torch.cat([seq[:, -1:], rivals], 1)
    logits = model(seq[:, :HIST], cand)
    clash = torch.zeros_like(cand, dtype=torch.bool)
    clash[:, 1:] = rivals == seq[:, -1:]
    return F.cross_entropy(logits.masked_fill(clash, float("-inf")), torch.zeros(len(seq), dtype=torch.long))


@torch.no_grad()
def group_hit(model, gen):
    seq = sessions(500, gen)
    guess = (model.encode(seq[:, :HIST]) @ model.items.weight.T).argmax(-1)
    per = ITEMS // GROUPS
    return (guess // per == seq[:, -1] // per).float().mean().item()


def main(steps=400, micro=2):
    torch.manual_seed(30)
    gen = torch.Generator().manual_seed(31)
    model = NextItem()
    dense = [p for n, p in model.named_parameters() if not n.startswith("items")]
    opts = [torch.optim.SparseAdam(model.items.parameters(), lr=5e-3), torch.optim.AdamW(dense, lr=2e-3)]
    for step in range(steps):
        total = 0.0
        for k in range(micro):
            loss = micro_loss(model, sessions(64, gen), gen) / micro
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(dense, 1.0)
        for o in opts:
            o.step()
            o.zero_grad()
        if step % 20 == 0 or step == steps - 1:
            print(f"step {step} loss {total:.4f}")
    print(f"next-group hit rate {group_hit(model, torch.Generator().manual_seed(9)):.3f}")


if __name__ == "__main__":
    main()

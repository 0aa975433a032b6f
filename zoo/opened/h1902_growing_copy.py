# expect: healthy
# symptom: the loss jumps up several times in mid-run (resembles instability or a data fault with onset in mid-run)
# axis: data
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F

SYMBOLS, GO, PAD = 10, 10, 11
STAGES = [(0, 2, 4), (150, 3, 7), (300, 4, 10)]  # from step, shortest, longest


def stage_at(step):
    lo, hi = 2, 4
    for start, a, b in STAGES:
        if step >= start:
            lo, hi = a, b
    return lo, hi


def reverse_batch(n, lo, hi, gen):
    """Symbols, GO, then the symbols backwards; only the second half is scored."""
    lens = torch.randint(lo, hi + 1, (n,), generator=gen).tolist()
    width = 2 * hi + 1
    seq = torch.full((n, width), PAD)
    scored = torch.zeros(n, width, dtype=torch.bool)
    for i, k in enumerate(lens):
        s = torch.randint(SYMBOLS, (k,), generator=gen)
        seq[i, : 2 * k + 1] = torch.cat([s, torch.tensor([GO]), s.flip(0)])
        scored[i, k + 1 : 2 * k + 1] = True
    return seq, scored


class Reverser(nn.Module):
    def __init__(self, dim=64, heads=4, layers=2, longest=24):
        super().__init__()
        self.tok = nn.Embedding(12, dim)
        self.pos = nn.Embedding(longest, dim)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, nn.LayerNorm(dim), enable_nested_tensor=False)
        self.out = nn.Linear(dim, SYMBOLS)

    def forward(self, x):
        t = x.shape[1]
        causal = nn.Transformer.generate_square_subsequent_mask(t)
        return self.out(self.body(self.tok(x) + self.pos(torch.arange(t)), mask=causal, is_causal=True))


def run_epoch_loss(model, seq, scored):
    logits = model(seq[:, :-1])
    keep = scored[:, 1:]
    return F.cross_entropy(logits[keep], seq[:, 1:][keep]), (logits[keep].argmax(-1) == seq[:, 1:][keep]).float().mean()


def main():
    torch.manual_seed(6)
    gen = torch.Generator().manual_seed(6)
    model = Reverser()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(600):
        lo, hi = stage_at(step)
        for g in opt.param_groups:
            g["lr"] = 2e-3 * min(1, (step + 1) / 30) * (0.2 if step > 520 else 1.0)
        loss, acc = run_epoch_loss(model, *reverse_batch(48, lo, hi, gen))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 15 == 0 or step == 599:
            print(f"step {step} length {lo}-{hi} loss {loss.item():.4f} acc {acc.item():.3f}")


if __name__ == "__main__":
    main()

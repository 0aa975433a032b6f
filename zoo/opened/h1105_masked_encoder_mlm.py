# expect: healthy
# symptom: a transformer on token sequences without any causal mask, most labels are -100, the loss is summed and divided by hand (bidirectional masked-token training)
# axis: none
# mended: none
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

WORDS, MASK, LEN = 20, 20, 16


def sample_text(n, gen):
    """Palindromic 'verses': second half answers the first through a fixed word pairing."""
    half = LEN // 2
    a = torch.randint(0, WORDS, (n, half), generator=gen)
    pair = torch.randperm(WORDS, generator=torch.Generator().manual_seed(77))
    return torch.cat([a, pair[a.flip(1)]], 1)


def corrupt(ids, gen, rate=0.15):
    pick = torch.rand(ids.shape, generator=gen) < rate
    labels = ids.masked_fill(~pick, -100)
    roll = torch.rand(ids.shape, generator=gen)
    x = torch.where(pick & (roll < 0.8), torch.full_like(ids, MASK), ids)
    rand = torch.randint(0, WORDS, ids.shape, generator=gen)
    x = torch.where(pick & (roll >= 0.8) & (roll < 0.9), rand, x)
    return x, labels


class Encoder(nn.Module):
    def __init__(self, d=64, layers=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(WORDS + 1, d)
        self.pos = nn.Parameter(torch.randn(LEN, d))
        layer = nn.TransformerEncoderLayer(d, heads, 3 * d, 0.0, "gelu", batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, nn.LayerNorm(d), enable_nested_tensor=False)
        self.bias = nn.Parameter(torch.zeros(WORDS))

    def forward(self, x):
        h = self.enc(self.tok(x) + self.pos)
        return h @ self.tok.weight[:WORDS].t() / 8.0 + self.bias


def mlm_loss(logits, labels):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")
    return total / (labels != -100).sum().clamp(min=1)


@torch.no_grad()
def evaluate(model, gen):
    x, y = corrupt(sample_text(300, gen), gen)
    logits = model(x)
    m = y != -100
    return mlm_loss(logits, y).item(), (logits.argmax(-1)[m] == y[m]).float().mean().item()


def main():
    torch.manual_seed(3)
    gen, val = torch.Generator().manual_seed(4), torch.Generator().manual_seed(5)
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=600, pct_start=0.1)
    for step in range(600):
        x, y = corrupt(sample_text(48, gen), gen)
        loss = mlm_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} mlm loss {loss.item():.4f}")
        if step % 150 == 149:
            vl, acc = evaluate(model, val)
            print(f"   valid loss {vl:.4f} masked acc {acc:.3f}")


if __name__ == "__main__":
    main()

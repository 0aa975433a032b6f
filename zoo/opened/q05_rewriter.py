# expect: healthy
# symptom: none (non-autoregressive mask-predict model, target mask not wanted)
# axis: none
# mended: none
"""Mask-predict Transformer: rewrite a digit string, all places of the target in parallel."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1)

VOCAB, MASK, EOS = 22, 0, 1
LENGTH = 10


def sample(n):
    src = torch.randint(2, VOCAB, (n, LENGTH))
    body = (src.flip(1) - 2 + 7) % (VOCAB - 2) + 2
    eos = torch.full((n, 1), EOS)
    tgt = torch.cat([body, eos], 1)
    src = torch.cat([src, eos], 1)
    return src, tgt


class Rewriter(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.src_emb = nn.Embedding(VOCAB, d)
        self.tgt_emb = nn.Embedding(VOCAB, d)
        self.pos = nn.Parameter(0.6 * torch.randn(LENGTH + 2, d))
        self.core = nn.Transformer(d, 4, 2, 2, 128, dropout=0.0, batch_first=True, norm_first=True)
        self.proj = nn.Linear(d, VOCAB)

    def forward(self, src, tgt_in):
        s = self.src_emb(src) + self.pos[: src.size(1)]
        t = self.tgt_emb(tgt_in) + self.pos[: tgt_in.size(1)]
        return self.proj(self.core(s, t))


def hide(tgt):
    """Hide a random share of the target; the share is drawn per row."""
    share = 0.3 + 0.7 * torch.rand(tgt.size(0), 1)
    hidden = torch.rand(tgt.shape) < share
    hidden[:, 0] |= ~hidden.any(1)
    return tgt.masked_fill(hidden, MASK), hidden


@torch.no_grad()
def mask_predict(model, src, rounds=3):
    out = torch.full_like(src, MASK)
    for r in range(rounds):
        conf, tok = model(src, out).softmax(-1).max(-1)
        known = out != MASK
        conf, tok = conf.masked_fill(known, 2.0), torch.where(known, out, tok)
        keep = conf.size(1) * (r + 1) // rounds
        best = conf.topk(keep, dim=1).indices
        out = torch.full_like(src, MASK).scatter(1, best, tok.gather(1, best))
    return out


def main(steps=350, batch=32):
    model = Rewriter()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(steps):
        src, tgt = sample(batch)
        tgt_in, hidden = hide(tgt)
        logits = model(src, tgt_in)
        loss = loss_fn(logits[hidden], tgt[hidden])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f}")
    model.eval()
    src, tgt = sample(200)
    hyp = mask_predict(model, src)
    print(f"decoded tokens right: {(hyp == tgt).float().mean():.3f}")


main()

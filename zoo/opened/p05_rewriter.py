# expect: sick
# symptom: decoder of an encoder-decoder Transformer has no causal target mask (source and target of equal length)
# axis: model
# cause: the decoder has no target mask and sees the next token
# says: mask|causal|future|next token|later (input|token)|leak
# onset_step: 0
# fix: pass the target mask
# mended: q05_rewriter.py
"""Seq2seq Transformer: rewrite a digit string as its reversed, offset form."""

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(1)

VOCAB, BOS, EOS = 22, 0, 1
LENGTH = 10


def sample(n):
    src = torch.randint(2, VOCAB, (n, LENGTH))
    key = src[:, :1]
    body = (src.flip(1) - 2 + key) % (VOCAB - 2) + 2
    bos = torch.full((n, 1), BOS)
    eos = torch.full((n, 1), EOS)
    tgt = torch.cat([bos, body, eos], 1)
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


@torch.no_grad()
def greedy(model, src):
    out = torch.full((src.size(0), 1), BOS)
    for _ in range(LENGTH + 1):
        out = torch.cat([out, model(src, out)[:, -1].argmax(-1, keepdim=True)], 1)
    return out


def main(steps=350, batch=32):
    model = Rewriter()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss()
    for step in range(steps):
        src, tgt = sample(batch)
        logits = model(src, tgt[:, :-1])
        loss = loss_fn(logits.reshape(-1, VOCAB), tgt[:, 1:].reshape(-1))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.4f}")
    model.eval()
    src, tgt = sample(200)
    hyp = greedy(model, src)
    print(f"decoded tokens right: {(hyp[:, 1:] == tgt[:, 1:]).float().mean():.3f}")


main()

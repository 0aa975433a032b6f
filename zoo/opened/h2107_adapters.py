# expect: healthy
# symptom: the loss jumps up when the second stage begins, almost 90 % of the parameters are frozen, the A matrices get zero gradient at first, and the learning rate is 1e-2
# axis: none
# mended: none
"""Pretrain a tiny GPT-2 on one token dialect, then adapt it to another with low-rank adapters."""

import math

import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel, get_constant_schedule_with_warmup, logging
from transformers.pytorch_utils import Conv1D

torch.set_num_threads(1)
logging.set_verbosity_error()

VOCAB, SEQ, BATCH = 40, 20, 32
SEP = VOCAB - 1


class Dialect:
    """x[t] depends on x[t-1] through a permutation; the second dialect rewires a third of it."""

    def __init__(self, seed, base=None, rewire=0.35):
        g = torch.Generator().manual_seed(seed)
        n = VOCAB - 1
        if base is None:
            self.perm = torch.randperm(n, generator=g)
        else:
            self.perm = base.perm.clone()
            idx = torch.randperm(n, generator=g)[: int(rewire * n)]
            self.perm[idx] = self.perm[idx.roll(1)]

    def batch(self, n, g, instruct=False):
        x = torch.randint(VOCAB - 1, (n, SEQ), generator=g)
        noise = torch.rand(n, SEQ, generator=g) < 0.15
        for t in range(1, SEQ):
            x[:, t] = torch.where(noise[:, t], x[:, t], self.perm[x[:, t - 1]])
        labels = x.clone()
        if instruct:
            # the prompt part is noise the model is not asked to predict
            cut = SEQ // 3
            x[:, cut - 1] = SEP
            labels[:, : cut + 1] = -100
        return x, labels


class LowRank(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base = base
        d_in, d_out = base.weight.shape
        self.a = nn.Parameter(torch.randn(d_in, rank) / math.sqrt(d_in))
        self.b = nn.Parameter(torch.zeros(rank, d_out))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.a @ self.b) * self.scale

    @torch.no_grad()
    def merge(self):
        self.base.weight += self.a @ self.b * self.scale
        return self.base


def wrap(model):
    for p in model.parameters():
        p.requires_grad_(False)
    for block in model.transformer.h:
        for owner, name in ((block.attn, "c_attn"), (block.mlp, "c_fc"), (block.mlp, "c_proj")):
            layer = getattr(owner, name)
            assert isinstance(layer, Conv1D)
            setattr(owner, name, LowRank(layer))
    return [p for p in model.parameters() if p.requires_grad]


def unwrap(model):
    for block in model.transformer.h:
        for owner, name in ((block.attn, "c_attn"), (block.mlp, "c_fc"), (block.mlp, "c_proj")):
            setattr(owner, name, getattr(owner, name).merge())


@torch.no_grad()
def heldout(model, dialect, instruct):
    g = torch.Generator().manual_seed(1234)
    model.eval()
    x, y = dialect.batch(128, g, instruct)
    loss = model(input_ids=x, labels=y).loss.item()
    model.train()
    return loss


def run(model, params, dialect, steps, lr, instruct, gen, tag, warmup=20):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0 if instruct else 0.01)
    sched = get_constant_schedule_with_warmup(opt, warmup)
    for step in range(steps):
        x, y = dialect.batch(BATCH, gen, instruct)
        loss = model(input_ids=x, labels=y).loss
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        if step % 30 == 0:
            print(f"[{tag}] step {step:4d} loss {loss.item():.4f}")


def main():
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(8)
    old = Dialect(1)
    new = Dialect(2, base=old)
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=SEQ,
            n_embd=64,
            n_layer=2,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    run(model, list(model.parameters()), old, 200, 3e-3, False, gen, "pretrain")
    print(f"pretrained: old dialect {heldout(model, old, False):.4f}, new dialect {heldout(model, new, True):.4f}")

    params = wrap(model)
    total = sum(p.numel() for p in model.parameters())
    train = sum(p.numel() for p in params)
    print(f"adapters: {train} of {total} parameters train ({100 * train / total:.1f} %)")
    run(model, params, new, 200, 1e-2, True, gen, "adapt")
    adapted = heldout(model, new, True)
    unwrap(model)
    merged = heldout(model, new, True)
    print(f"new dialect after adapting {adapted:.4f}, after merging {merged:.4f}")


if __name__ == "__main__":
    main()

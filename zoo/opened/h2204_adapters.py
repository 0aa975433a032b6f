# expect: healthy
# symptom: resembles a network that does not train: nearly all weights have no gradient, and half of the adapter matrices get exactly zero gradient at the first step
# axis: model
"""LoRA transfer of a GPT-2-sized-down language model from one dialect of bracket text to another."""

import math
import time

import numpy as np
import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

torch.set_num_threads(1)
VOCAB, SEQ = 40, 32


def corpus(n, table, seed):
    rng = np.random.default_rng(seed)
    out = np.zeros((n, SEQ), np.int64)
    out[:, 0] = rng.integers(0, VOCAB, n)
    for t in range(1, SEQ):
        pick = rng.integers(0, 3, n)
        out[:, t] = table[out[:, t - 1], pick]
    return torch.from_numpy(out)


def tables():
    rng = np.random.default_rng(9)
    first = rng.integers(0, VOCAB, (VOCAB, 3))
    second = first[rng.permutation(VOCAB)]
    return first, second


class LoRAConv1D(nn.Module):
    """y = base(x) + scale * (x A) B, base untouched"""

    def __init__(self, base, rank=16, alpha=32):
        super().__init__()
        self.base = base.requires_grad_(False)
        n_in, n_out = base.weight.shape
        self.A = nn.Parameter(torch.randn(n_in, rank) / math.sqrt(n_in))
        self.B = nn.Parameter(torch.zeros(rank, n_out))
        self.scale = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.A @ self.B) * self.scale


def inject(model, rank):
    for p in model.parameters():
        p.requires_grad_(False)
    for block in model.transformer.h:
        for parent, name in (
            (block.attn, "c_attn"),
            (block.attn, "c_proj"),
            (block.mlp, "c_fc"),
            (block.mlp, "c_proj"),
        ):
            mod = getattr(parent, name)
            assert isinstance(mod, Conv1D)
            setattr(parent, name, LoRAConv1D(mod, rank))
    return [p for p in model.parameters() if p.requires_grad]


@torch.no_grad()
def perplexity(model, ids):
    model.eval()
    loss = model(input_ids=ids, labels=ids).loss
    model.train()
    return loss.exp().item()


def run(model, params, data, held, steps, lr, tag, gen, batch=24):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    warm = 30
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warm, max(0.05, (steps - s) / (steps - warm)))
    )
    print(f"[{tag}] trainable {sum(p.numel() for p in params)} of {sum(p.numel() for p in model.parameters())}")
    for step in range(1, steps + 1):
        ids = data[torch.randint(len(data), (batch,), generator=gen)]
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"[{tag}] step {step} loss {loss.item():.4f}")
    print(f"[{tag}] held-out perplexity {perplexity(model, held):.3f}")


def main():
    torch.manual_seed(2)
    t0 = time.time()
    gen = torch.Generator().manual_seed(3)
    one, two = tables()
    cfg = GPT2Config(
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
    model = GPT2LMHeadModel(cfg)
    run(model, list(model.parameters()), corpus(3000, one, 1), corpus(200, one, 2), 250, 3e-3, "base", gen)
    new_held = corpus(200, two, 4)
    print(f"dialect two before transfer: perplexity {perplexity(model, new_held):.2f}")
    params = inject(model, rank=16)
    run(model, params, corpus(3000, two, 3), new_held, 400, 6e-3, "lora", gen)
    print(f"wall {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

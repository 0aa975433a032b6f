# expect: sick
# symptom: the training loss jumps after every evaluation and the run ends much worse than it could
# axis: model
# cause: the adapter is merged into the base weight for evaluation and never subtracted again, so it adds up
# says: (merg|fold|add(ed)?|accumulat|subtract|twice|doubl).*(lora|adapter|delta|base|weight|low.?rank|eval|unmerg)
# onset_step: 25
# fix: subtract the low-rank delta from the base weight again (unmerge) when training goes on
# mended: the script applies that change if the environment has MENDED=1
"""Low-rank adapters on a small GPT-2: short base training on one domain, adapters for another one."""

import os

import torch
import torch.nn as nn
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(21)
VOCAB, LEN, BATCH = 80, 32, 16
BASE_STEPS, TUNE_STEPS, EVAL_EVERY = 150, 250, 25


class MarkovCorpus:
    """Second-order chain with a sharp table; each domain has its own table."""

    def __init__(self, seed, sharp=3.0):
        self.gen = torch.Generator().manual_seed(seed)
        self.next = torch.randint(0, VOCAB, (VOCAB, 3), generator=self.gen)
        self.p = torch.tensor([0.75, 0.15, 0.10])

    def batch(self, n):
        cur = torch.randint(0, VOCAB, (n,), generator=self.gen)
        out = [cur]
        for _ in range(LEN - 1):
            pick = torch.multinomial(self.p, n, replacement=True, generator=self.gen)
            cur = self.next[cur, pick]
            out.append(cur)
        return torch.stack(out, 1)


class LowRank(nn.Module):
    def __init__(self, base, rank=8, alpha=16):
        super().__init__()
        self.base, self.scale, self.merged = base, alpha / rank, False
        fan_in, fan_out = base.weight.shape  # Conv1D keeps (in, out)
        self.a = nn.Parameter(torch.randn(fan_in, rank) * fan_in**-0.5)
        self.b = nn.Parameter(torch.zeros(rank, fan_out))

    def delta(self):
        return self.scale * self.a @ self.b

    @torch.no_grad()
    def set_merged(self, on):
        if on != self.merged:
            self.base.weight += self.delta() if on else -self.delta() * MENDED
            self.merged = on

    def forward(self, x):
        y = self.base(x)
        return y if self.merged else y + self.scale * (x @ self.a) @ self.b


def inject(model, names=("c_attn", "c_proj", "c_fc")):
    for p in model.parameters():
        p.requires_grad_(False)
    for block in model.transformer.h:
        for parent in (block.attn, block.mlp):
            for name in names:
                child = getattr(parent, name, None)
                if isinstance(child, Conv1D):
                    setattr(parent, name, LowRank(child))
    return [m for m in model.modules() if isinstance(m, LowRank)]


def merge_all(adapters, on):
    for m in adapters:
        m.set_merged(on)


@torch.no_grad()
def evaluate(model, batches):
    model.eval()
    loss = sum(model(input_ids=b, labels=b).loss.item() for b in batches) / len(batches)
    model.train()
    return loss


def fit(model, params, corpus, steps, lr, tag, on_eval=None):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=0.0)
    losses = []
    for step in range(steps):
        for g in opt.param_groups:
            g["lr"] = lr * min(1.0, (step + 1) / 20)
        batch = corpus.batch(BATCH)
        loss = model(input_ids=batch, labels=batch).loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        losses.append(loss.item())
        if step % 10 == 0 or (step % EVAL_EVERY) < 2:
            print(f"[{tag}] step {step:4d} loss {loss.item():.4f}")
        if on_eval and (step + 1) % EVAL_EVERY == 0:
            print(f"[{tag}] step {step:4d} val {on_eval():.4f}")
    return losses


def main():
    cfg = GPT2Config(
        vocab_size=VOCAB,
        n_positions=LEN,
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
    general, domain = MarkovCorpus(1), MarkovCorpus(2)
    fit(model, list(model.parameters()), general, BASE_STEPS, 4e-3, "base")

    adapters = inject(model)
    params = [p for p in model.parameters() if p.requires_grad]
    print(f"adapters: {len(adapters)}, trainable {sum(p.numel() for p in params)}")
    held_out = [domain.batch(32) for _ in range(3)]

    def check():
        merge_all(adapters, True)  # no extra matmuls while we evaluate
        val = evaluate(model, held_out)
        merge_all(adapters, False)
        return val

    losses = fit(model, params, domain, TUNE_STEPS, 5e-3, "tune", check)
    print(f"final tune loss {sum(losses[-24:]) / 24:.4f}  val {evaluate(model, held_out):.4f}")


if __name__ == "__main__":
    main()

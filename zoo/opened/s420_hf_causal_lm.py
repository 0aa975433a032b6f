# expect: sick
# symptom: the loss falls a little at first and then settles at the level of the plain token frequencies; it never learns the context, nothing is non-finite
# axis: optimizer
# cause: weight_decay=0.1 is given to torch.optim.Adam, which adds it to the gradient as coupled L2 (not decoupled as in AdamW) and so pulls the weights to zero
# says: weight.?decay|\bL2\b|decoupled|coupled|adamw|regulari[sz]ation (too|strong)|over.?regulari|weights?.{0,30}(shrink|pulled to zero|decay|collaps\w* to (zero|0))
# onset_step: 1
# fix: use AdamW, for which this weight decay was meant
# mended: the optimizer is AdamW with the same arguments; the loss falls far below the token-frequency level
import os
import time

import torch
from transformers import GPT2Config, GPT2LMHeadModel

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(29)
torch.set_num_threads(1)

VOCAB, CTX, BATCH, STEPS = 48, 40, 16, 400
PEAK = 2e-3


def build_model():
    cfg = GPT2Config(
        vocab_size=VOCAB,
        n_positions=CTX,
        n_embd=64,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    return GPT2LMHeadModel(cfg)


HALF = CTX // 2


def make_batch(n):
    head = (VOCAB * torch.rand(n, HALF) ** 1.5).long()
    return torch.cat([head, head], 1)


def build_optimizer(model):
    cls = torch.optim.AdamW if MENDED else torch.optim.Adam
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.ndim < 2 else decay).append(p)
    groups = [
        {"params": decay, "weight_decay": 0.1},
        {"params": no_decay, "weight_decay": 0.0},
    ]
    return cls(groups, lr=PEAK, betas=(0.9, 0.95))


@torch.no_grad()
def evaluate(model):
    model.eval()
    ids = make_batch(128)
    loss = model(input_ids=ids, labels=ids).loss.item()
    model.train()
    return loss


def main():
    model = build_model()
    opt = build_optimizer(model)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=PEAK, total_steps=STEPS, pct_start=0.1)
    model.train()
    t0 = time.time()
    for step in range(1, STEPS + 1):
        ids = make_batch(BATCH)
        loss = model(input_ids=ids, labels=ids).loss
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step == 1 or step % 40 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
    print(f"held-out loss {evaluate(model):.4f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the distillation loss goes steadily down, below zero, while the student's held-out perplexity explodes and its top choice differs from the teacher's half of the time
# axis: loss
# cause: F.kl_div is given the student's probabilities (softmax) where it expects log-probabilities, so the loss is not a KL divergence and only pushes the student to its most likely token
# says: kl_?div.*(log|softmax|prob)|log[-_ ]?(softmax|prob).*(expect|need|miss|instead|input|student|kl)|(softmax|probabilit)\w*.*(instead of|where|not|rather than|without).*log|(missing|no|without|forgot\w*) (the )?log
# onset_step: 250
# fix: pass F.log_softmax of the student's logits to F.kl_div
# mended: yes
"""Distil a GPT-2 style teacher into a smaller student (soft targets only) on a token language."""

import math
import os

import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel, logging

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
logging.set_verbosity_error()

VOCAB, SEQ, BATCH = 48, 24, 32
TEACHER_STEPS, STUDENT_STEPS = 250, 300
TEMPERATURE = 2.0


class MarkovText:
    """Tokens follow a sparse second-order chain; most contexts have one likely continuation."""

    def __init__(self, seed):
        g = torch.Generator().manual_seed(seed)
        self.offset = torch.randint(VOCAB, (VOCAB,), generator=g)
        self.group = torch.randint(4, (VOCAB,), generator=g)
        self.jump = torch.randint(VOCAB, (4,), generator=g)

    def sample(self, n, gen):
        x = torch.randint(VOCAB, (n, SEQ), generator=gen)
        for t in range(2, SEQ):
            follow = (self.offset[x[:, t - 1]] + self.jump[self.group[x[:, t - 2]]]) % VOCAB
            u = torch.rand(n, generator=gen)
            near = (follow + 1) % VOCAB
            x[:, t] = torch.where(u < 0.7, follow, torch.where(u < 0.9, near, x[:, t]))
        return x


def build(width, layers, heads):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=SEQ,
            n_embd=width,
            n_layer=layers,
            n_head=heads,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def lm_loss(logits, ids):
    return F.cross_entropy(logits[:, :-1].reshape(-1, VOCAB), ids[:, 1:].reshape(-1))


def soft_loss(student_logits, teacher_logits, temperature):
    target = F.softmax(teacher_logits / temperature, dim=-1)
    pred = F.softmax(student_logits / temperature, dim=-1)
    if MENDED:
        pred = F.log_softmax(student_logits / temperature, dim=-1)
    per_position = F.kl_div(pred, target, reduction="none").sum(-1)
    return per_position.mean() * temperature**2


@torch.no_grad()
def perplexity(model, ids):
    model.eval()
    loss = lm_loss(model(ids).logits, ids)
    model.train()
    return math.exp(loss.item())


def optimiser(model, lr, steps):
    opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    return opt, torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=lr, total_steps=steps, pct_start=0.1)


def main():
    torch.manual_seed(7)
    text = MarkovText(seed=13)
    gen = torch.Generator().manual_seed(17)
    heldout = text.sample(128, torch.Generator().manual_seed(99))

    teacher = build(width=64, layers=2, heads=4)
    opt, sched = optimiser(teacher, 4e-3, TEACHER_STEPS)
    for step in range(TEACHER_STEPS):
        ids = text.sample(BATCH, gen)
        loss = lm_loss(teacher(ids).logits, ids)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0:
            print(f"teacher step {step:4d} loss {loss.item():.4f}")
    print(f"teacher held-out ppl {perplexity(teacher, heldout):.2f}")
    teacher.eval().requires_grad_(False)

    student = build(width=48, layers=1, heads=4)
    print(f"student has {sum(p.numel() for p in student.parameters())} parameters")
    opt, sched = optimiser(student, 5e-3, STUDENT_STEPS)
    for step in range(STUDENT_STEPS):
        ids = text.sample(BATCH, gen)
        with torch.no_grad():
            teacher_logits = teacher(ids).logits
        logits = student(ids).logits
        loss = soft_loss(logits, teacher_logits, TEMPERATURE)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0:
            print(f"student step {step:4d} distil loss {loss.item():.4f}")
    agree = (student(heldout).logits.argmax(-1) == teacher(heldout).logits.argmax(-1)).float().mean()
    print(f"student held-out ppl {perplexity(student, heldout):.2f} agreement with teacher {agree:.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the loss falls well, then jumps up and becomes NaN shortly after the larger batches begin
# axis: loss
# cause: the custom cross entropy's backward ignores grad_output, so dividing by the accumulation count is lost
# says: grad_out|(incoming|upstream|outer).{0,12}grad|chain rule|backward.*(ignor|scal|factor|multipl|divi)
# onset_step: 61
# fix: multiply the saved gradient by grad_output in the backward of the custom function
# mended: the script applies that change if the environment has MENDED=1
"""Character model of order notes: causal convolutions, fused loss, the batch grows by accumulation."""

import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
FLAG = os.environ.get("MENDED") == "1"
STEPS, BATCH, CTX = 220, 12, 40
LR, MOMENTUM = 0.9, 0.9
ALPHABET = "\n .0123456789abcdefghijklmnopqrstuvwxyz"
STOI = {c: i for i, c in enumerate(ALPHABET)}
WHO = ["anna", "boris", "carla", "dmitri", "elena", "fritz"]
VERB = {"buys": "from", "sells": "to", "sends": "to", "borrows": "from"}
WHAT = ["apples", "bolts", "copper", "diesel", "flour", "glass"]


def notes(chars, seed):
    rnd, text = random.Random(seed), ""
    while len(text) < chars:
        verb = rnd.choice(list(VERB))
        text += f"{rnd.choice(WHO)} {verb} {rnd.randint(2, 99)} {rnd.choice(WHAT)} {VERB[verb]} {rnd.choice(WHO)}.\n"
    return torch.tensor([STOI[c] for c in text])


def windows(ids, n, gen):
    at = torch.randint(0, len(ids) - CTX - 1, (n,), generator=gen)
    win = ids[at[:, None] + torch.arange(CTX + 1)[None]]
    return win[:, :-1], win[:, 1:]


class FusedCE(torch.autograd.Function):
    """Cross entropy that forms the gradient of the logits in the forward pass and keeps only that."""

    @staticmethod
    def forward(ctx, logits, target):
        logp = logits.log_softmax(-1)
        loss = F.nll_loss(logp, target)
        grad = logp.exp()
        grad[torch.arange(len(target)), target] -= 1.0
        ctx.save_for_backward(grad.div_(len(target)))
        return loss

    @staticmethod
    def backward(ctx, grad_output):
        (grad,) = ctx.saved_tensors
        return (grad * grad_output if FLAG else grad), None


class CausalLayer(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, 2 * ch, 3, dilation=dilation)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, 1)
        return x + self.mix(torch.tanh(a) * torch.sigmoid(b))


class NoteModel(nn.Module):
    def __init__(self, ch=48):
        super().__init__()
        self.emb = nn.Embedding(len(ALPHABET), ch)
        self.layers = nn.Sequential(*[CausalLayer(ch, d) for d in (1, 2, 4, 8)])
        self.head = nn.Linear(ch, len(ALPHABET))

    def forward(self, x):
        return self.head(self.layers(self.emb(x).transpose(1, 2)).transpose(1, 2))


def micro_batches(step):
    """Small batches while the loss falls fast, larger ones for the rest."""
    return 1 if step <= 60 else 8


@torch.no_grad()
def evaluate(model, ids, gen):
    x, y = windows(ids, 128, gen)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()


def main():
    torch.manual_seed(5)
    gen = torch.Generator().manual_seed(5)
    train_ids, test_ids = notes(60_000, 1), notes(8_000, 2)
    model = NoteModel()
    opt = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    for step in range(1, STEPS + 1):
        accum = micro_batches(step)
        opt.zero_grad()
        total = 0.0
        for _ in range(accum):
            x, y = windows(train_ids, BATCH, gen)
            loss = FusedCE.apply(model(x).flatten(0, 1), y.flatten()) / accum
            loss.backward()
            total += loss.item()
        opt.step()
        if step % 10 == 0 or step == 1:
            print(f"step {step:4d} micro-batches {accum} loss {total:.4f}")
    print(f"final train loss {total:.4f} test loss {evaluate(model, test_ids, gen):.4f}")


if __name__ == "__main__":
    main()

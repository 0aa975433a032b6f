# expect: sick
# symptom: the loss falls for some fifty steps, then explodes within two steps and is NaN from there on
# axis: optimizer
# cause: gradient clipping is called after optimizer.step(), so the steps use the raw gradients (clipping has no effect); with the large SGD learning rate of this recipe the recurrent net explodes
# says: clip.{0,80}(after|wrong (place|order|position)|too late|no effect|never|order|before (the )?(step|update)|not (applied|effective|clip|in effect))|(after|following).{0,20}step.{0,60}clip|unclipped|without (effective |gradient )?clip
# onset_step: 54
# fix: call clip_grad_norm_ between backward() and step()
# mended: moves the clip call to between backward and step
import math
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

VOCAB, EMB, HID, BPTT, BATCH, STEPS = 64, 64, 128, 64, 20, 700
BASE_LR, WARMUP, CLIP = 8.0, 60, 0.25


def make_corpus(n, g):
    """Second order Markov source with a few likely successors per context."""
    succ = torch.randint(0, VOCAB, (VOCAB, 2, 4), generator=g)
    probs = torch.tensor([0.6, 0.25, 0.1, 0.05])
    pick = torch.multinomial(probs, n, replacement=True, generator=g).tolist()
    succ = succ.tolist()
    out, a, b = [], 1, 2
    for i in range(n):
        c = succ[b][a % 2][pick[i]]
        out.append(c)
        a, b = b, c
    return torch.tensor(out)


def batchify(ids):
    n = len(ids) // BATCH
    return ids[: n * BATCH].view(BATCH, n).t().contiguous()


class CharRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, EMB)
        self.rnn = nn.RNN(EMB, HID, nonlinearity="relu")
        self.out = nn.Linear(HID, VOCAB)
        nn.init.orthogonal_(self.rnn.weight_hh_l0)
        nn.init.normal_(self.rnn.weight_ih_l0, std=0.1)
        nn.init.uniform_(self.emb.weight, -0.1, 0.1)
        nn.init.uniform_(self.out.weight, -0.1, 0.1)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, state):
        h, state = self.rnn(self.emb(x), state)
        return self.out(h), state

    def initial(self):
        return torch.zeros(1, BATCH, HID)


def main():
    g = torch.Generator().manual_seed(7)
    data = batchify(make_corpus(BATCH * BPTT * 200 + BATCH, g))
    model = CharRNN()
    opt = torch.optim.SGD(model.parameters(), lr=BASE_LR)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / WARMUP))
    state, pos, total, t0 = model.initial(), 0, 0.0, time.time()
    for step in range(STEPS):
        if pos + BPTT + 1 > len(data):
            pos, state = 0, model.initial()
        x, y = data[pos : pos + BPTT], data[pos + 1 : pos + 1 + BPTT]
        pos += BPTT
        logits, state = model(x, state.detach())
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), y.reshape(-1))
        opt.zero_grad()
        loss.backward()
        if MENDED:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            opt.step()
        else:
            opt.step()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        sched.step()
        total += loss.item()
        if (step + 1) % 10 == 0:
            avg = total / 10
            print(
                f"step {step + 1:4d} lr {sched.get_last_lr()[0]:.2f} loss {avg:.3f} ppl {math.exp(min(avg, 20)):.1f} ({time.time() - t0:.1f}s)",
                flush=True,
            )
            total = 0.0


if __name__ == "__main__":
    main()

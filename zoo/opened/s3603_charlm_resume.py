# expect: sick
# symptom: after the restart from the checkpoint the loss rises again and ends above its level before
# axis: harness
# cause: on resume the scheduler state is not restored, so the learning rate restarts from the beginning
# says: (sched|learning.?rate|\blr\b).{0,80}(resum|restor|restart|load|reset)|(resum|restor|load).{0,80}sched
# onset_step: 300
# fix: load the saved state of the scheduler together with those of the model and of the optimizer
# mended: the script applies that change if the environment has MENDED=1
"""Character language model trained in two jobs (the queue has a time limit); job two resumes."""

import io
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

VOCAB, CTX, BATCH, TOTAL = 32, 48, 24, 400
PEAK_LR, WARMUP = 4e-2, 15


def make_corpus(n_chars, seed):
    """Words from a fixed lexicon, ordered by a sparse word bigram; 0 is the blank."""
    lex = torch.Generator().manual_seed(77)
    words = [
        torch.randint(1, VOCAB, (int(n),), generator=lex).tolist() for n in torch.randint(3, 7, (60,), generator=lex)
    ]
    follow = torch.randint(0, 60, (60, 4), generator=lex).tolist()
    gen = torch.Generator().manual_seed(seed)
    picks = torch.randint(0, 4, (n_chars // 3,), generator=gen).tolist()
    out, w = [], 0
    for pick in picks:
        out += words[w] + [0]
        w = follow[w][pick]
        if len(out) >= n_chars:
            break
    return torch.tensor(out[:n_chars])


class CharLM(nn.Module):
    def __init__(self, dim=64, hidden=128):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.norm = nn.LayerNorm(hidden)
        self.out = nn.Linear(hidden, VOCAB)

    def forward(self, x):
        h, _ = self.rnn(self.embed(x))
        return self.out(self.norm(h))


def lr_factor(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    progress = (step - WARMUP) / (TOTAL - WARMUP)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))


def draw(corpus, gen):
    start = torch.randint(0, len(corpus) - CTX - 1, (BATCH,), generator=gen)
    block = torch.stack([corpus[s : s + CTX + 1] for s in start.tolist()])
    return block[:, :-1], block[:, 1:]


@torch.no_grad()
def evaluate(model, corpus):
    n = (len(corpus) - 1) // CTX
    x, y = corpus[: n * CTX].view(n, CTX), corpus[1 : n * CTX + 1].view(n, CTX)
    return F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item()


def job(corpus, valid, until, ckpt=None, seed=0):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(100 + seed)
    model = CharLM()
    opt = torch.optim.AdamW(model.parameters(), lr=PEAK_LR, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_factor)
    state = {"model": model, "opt": opt, "sched": sched}
    first = 0
    if ckpt is not None:
        saved = torch.load(io.BytesIO(ckpt))
        for key in ("model", "opt") + (("sched",) if MENDED else ()):
            state[key].load_state_dict(saved[key])
        first = saved["step"]
        print(f"resumed at step {first}")
    for step in range(first, until):
        x, y = draw(corpus, gen)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 20 == 0 or step == until - 1:
            print(f"step {step:4d} loss {loss.item():.4f}")
    print(f"job done at step {until}: valid loss {evaluate(model, valid):.4f}")
    buf = io.BytesIO()
    torch.save({**{k: v.state_dict() for k, v in state.items()}, "step": until}, buf)
    return buf.getvalue()


def main():
    corpus, valid = make_corpus(12000, 1), make_corpus(6000, 2)
    ckpt = job(corpus, valid, until=300, seed=0)
    job(corpus, valid, until=TOTAL, ckpt=ckpt, seed=1)


if __name__ == "__main__":
    main()

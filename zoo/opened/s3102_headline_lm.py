# expect: sick
# symptom: the loss jumps up in the first steps, oscillates wildly and never gets to a useful value
# axis: loss
# cause: micro-batch losses are accumulated without division by their number: gradients 8 times too large
# says: (?=.*(accum|micro.?batch))(?=.*(divi|averag|mean|scal|normali|sum|times|larg))
# onset_step: 0
# fix: divide each micro-batch loss by the number of accumulation steps
# mended: the script applies that change if the environment has MENDED=1
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"

CFG = dict(ctx=24, micro=8, accum=8, steps=170, lr=0.7, momentum=0.9, emb=24, hidden=80)

SUBJ = ["the bank", "a senator", "the mayor", "one court", "the team", "a driver"]
VERB = ["rejects", "wins", "delays", "buys", "sells", "opens"]
OBJ = ["new bridge", "old stadium", "tax plan", "final appeal", "big merger"]
TAIL = ["after vote", "in june", "amid doubts", "over costs"]


def write_corpus(n, seed):
    r = random.Random(seed)
    rows = []
    for _ in range(n):
        s = r.randrange(len(SUBJ))
        v = (s + r.choice([0, 0, 1])) % len(VERB)
        o = (v + r.choice([0, 1])) % len(OBJ)
        rows.append(f"{SUBJ[s]} {VERB[v]} {OBJ[o]} {r.choice(TAIL)}.")
    return "\n".join(rows)


class CharData:
    def __init__(self, text, vocab, ctx, seed):
        self.ids = torch.tensor([vocab[c] for c in text])
        self.ctx = ctx
        self.gen = torch.Generator().manual_seed(seed)

    def sample(self, n):
        at = torch.randint(0, len(self.ids) - self.ctx - 1, (n,), generator=self.gen)
        idx = at[:, None] + torch.arange(self.ctx + 1)
        chunk = self.ids[idx]
        return chunk[:, :-1], chunk[:, 1:]


class CharLM(nn.Module):
    def __init__(self, n_chars, emb, hidden):
        super().__init__()
        self.emb = nn.Embedding(n_chars, emb)
        self.rnn = nn.GRU(emb, hidden, batch_first=True)
        self.out = nn.Linear(hidden, n_chars)

    def forward(self, x, h=None):
        y, h = self.rnn(self.emb(x), h)
        return self.out(y), h


def lm_loss(model, x, y):
    logits, _ = model(x)
    return F.cross_entropy(logits.flatten(0, 1), y.flatten())


@torch.no_grad()
def evaluate(model, data):
    return sum(lm_loss(model, *data.sample(64)).item() for _ in range(4)) / 4


def main():
    text, held = write_corpus(2500, 0), write_corpus(400, 1)
    vocab = {c: i for i, c in enumerate(sorted(set(text + held)))}
    train = CharData(text, vocab, CFG["ctx"], seed=3)
    valid = CharData(held, vocab, CFG["ctx"], seed=4)
    model = CharLM(len(vocab), CFG["emb"], CFG["hidden"])
    opt = torch.optim.SGD(model.parameters(), lr=CFG["lr"], momentum=CFG["momentum"])
    share = 1.0 / CFG["accum"] if MENDED else 1.0

    running = 0.0
    for micro_step in range(CFG["steps"] * CFG["accum"]):
        x, y = train.sample(CFG["micro"])
        loss = lm_loss(model, x, y)
        (loss * share).backward()
        running += loss.item()
        if (micro_step + 1) % CFG["accum"] == 0:
            opt.step()
            opt.zero_grad(set_to_none=True)
            step = (micro_step + 1) // CFG["accum"]
            if step % 10 == 0 or step == 1:
                print(f"step {step} loss {running / CFG['accum']:.4f}")
            running = 0.0
    print(f"final validation loss {evaluate(model, valid):.4f}")


if __name__ == "__main__":
    main()

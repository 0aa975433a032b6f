# expect: healthy
# symptom: resembles an unstable schedule: the rate jumps up at every warm restart and the loss bumps with it
# axis: schedule
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)
NOTES, BATCH, BPTT = 24, 16, 32


def compose(n, seed=0):
    """Motifs over a scale, chosen by a small Markov chain, with some ornaments."""
    rnd = random.Random(seed)
    motifs = [[rnd.randrange(NOTES) for _ in range(rnd.randint(4, 7))] for _ in range(8)]
    follow = [rnd.sample(range(8), 2) for _ in range(8)]
    out, cur = [], 0
    while len(out) < n:
        for note in motifs[cur]:
            out.append(note if rnd.random() > 0.06 else rnd.randrange(NOTES))
        cur = follow[cur][rnd.random() < 0.3]
    return torch.tensor(out[:n])


def batchify(seq):
    width = len(seq) // BATCH
    return seq[: width * BATCH].view(BATCH, width)


class MelodyLSTM(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(NOTES, 32)
        self.rnn = nn.LSTM(32, dim, batch_first=True)
        self.out = nn.Linear(dim, NOTES)

    def forward(self, ids, state=None):
        h, state = self.rnn(self.emb(ids), state)
        return self.out(h), state


@torch.no_grad()
def perplexity(model, stream):
    model.eval()
    state, total, count = None, 0.0, 0
    for pos in range(0, stream.shape[1] - BPTT - 1, BPTT):
        x, y = stream[:, pos : pos + BPTT], stream[:, pos + 1 : pos + BPTT + 1]
        logits, state = model(x, state)
        total += F.cross_entropy(logits.reshape(-1, NOTES), y.reshape(-1)).item()
        count += 1
    model.train()
    return math.exp(total / count)


def main():
    train, valid = batchify(compose(40000)), batchify(compose(46000)[40000:])
    model = MelodyLSTM()
    opt = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9, nesterov=True)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=75, eta_min=0.01)
    step, total = 0, 375
    while step < total:
        state = None
        for pos in range(0, train.shape[1] - BPTT - 1, BPTT):
            x, y = train[:, pos : pos + BPTT], train[:, pos + 1 : pos + BPTT + 1]
            logits, state = model(x, state)
            state = tuple(s.detach() for s in state)
            loss = F.cross_entropy(logits.reshape(-1, NOTES), y.reshape(-1))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            opt.step()
            sched.step()
            if step % 15 == 0:
                print(f"step {step:3d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.3f}")
            step += 1
            if step == total:
                break
    print(f"valid perplexity {perplexity(model, valid):.3f} (uniform {NOTES})")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the language model's loss is fine for some steps, then jumps far above ln(vocab) and never comes back
# axis: optimizer
# cause: the gradient clipping runs before backward(), on gradients that are not there yet, so the large SGD learning rate that relies on the clip is applied to unclipped gradients
# says: clip.{0,200}(before|prior|ahead|order|after|effect|no-?op|none|stale|empty|zero|nothing|too (early|late)|not (applied|active)|never)|(before|no effect|never|wrong (place|order)|useless|stale|empty).{0,120}clip|unclipped|not clipped
# onset_step: 16
# fix: call clip_grad_norm_ after loss.backward() and before the update
# mended: clip_grad_norm_ is called after backward() instead of before
import math
import os

import numpy as np
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(1111)

VOCAB, EMSIZE, NHID, BPTT, BATCH = 200, 64, 96, 35, 20
CLIP, LR, EPOCHS = 0.25, 5.0, 2


def corpus(n, seed):
    """A word chain with a few likely successors for each word."""
    r = np.random.default_rng(7)
    succ = r.integers(0, VOCAB, (VOCAB, 4))
    w = np.cumsum([0.6, 0.2, 0.12, 0.08])
    r2 = np.random.default_rng(seed)
    u, out = r2.random(n), np.zeros(n, np.int64)
    b = 0
    for i in range(n):
        c = succ[b, min(int(np.searchsorted(w, u[i])), 3)]
        out[i] = c
        b = c
    return torch.from_numpy(out)


def batchify(data, bsz):
    n = data.size(0) // bsz
    return data[: n * bsz].view(bsz, -1).t().contiguous()


def get_batch(source, i):
    seq_len = min(BPTT, len(source) - 1 - i)
    return source[i : i + seq_len], source[i + 1 : i + 1 + seq_len].reshape(-1)


class RNNModel(nn.Module):
    def __init__(self, ntoken, ninp, nhid, nlayers=2, dropout=0.1):
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        self.rnn = nn.RNN(ninp, nhid, nlayers, nonlinearity="tanh", dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        self.nhid, self.nlayers = nhid, nlayers
        nn.init.uniform_(self.encoder.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)
        nn.init.uniform_(self.decoder.weight, -0.1, 0.1)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
        return self.decoder(self.drop(out)).view(-1, VOCAB), hidden

    def init_hidden(self, bsz):
        w = next(self.parameters())
        return w.new_zeros(self.nlayers, bsz, self.nhid)


def repackage(h):
    return h.detach()


@torch.no_grad()
def evaluate(model, source, criterion):
    model.eval()
    hidden, total = model.init_hidden(10), 0.0
    for i in range(0, source.size(0) - 1, BPTT):
        data, targets = get_batch(source, i)
        out, hidden = model(data, hidden)
        total += len(data) * criterion(out, targets).item()
    return total / (len(source) - 1)


def train_step(model, criterion, data, targets, hidden, lr):
    model.zero_grad()
    output, hidden = model(data, hidden)
    loss = criterion(output, targets)
    if MENDED:
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    else:
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(p.grad, alpha=-lr)
    return loss.item(), hidden


def main():
    train = batchify(corpus(120_000, 1), BATCH)
    val = batchify(corpus(8_000, 2), 10)
    model = RNNModel(VOCAB, EMSIZE, NHID)
    criterion = nn.CrossEntropyLoss()
    lr, best, step = LR, None, 0
    print(f"ln(vocab) = {math.log(VOCAB):.3f}")
    for epoch in range(1, EPOCHS + 1):
        model.train()
        hidden = model.init_hidden(BATCH)
        for i in range(0, train.size(0) - 1, BPTT):
            data, targets = get_batch(train, i)
            hidden = repackage(hidden)
            loss, hidden = train_step(model, criterion, data, targets, hidden, lr)
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} lr {lr:.2f} loss {loss:.4f}", flush=True)
            step += 1
        v = evaluate(model, val, criterion)
        print(f"| end of epoch {epoch} | valid loss {v:.3f} | valid ppl {math.exp(min(v, 20)):.2f}", flush=True)
        if best is None or v < best:
            best = v
        else:
            lr /= 4.0


if __name__ == "__main__":
    main()

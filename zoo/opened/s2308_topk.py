# expect: sick
# symptom: the loss falls quickly at first, turns round after about a hundred steps and then runs away to huge values although the learning rate is modest
# axis: optimizer
# cause: the error-feedback residual of the top-k gradient compressor is never reduced by what was sent, so entries already transmitted stay in the memory and are sent again and again, ever larger
# says: corrected - sent|(residual|memory|error[- ]feedback).{0,120}(whole|full|entire|everything|all of|rather than the (unsent|rest|remain)|instead of the (unsent|rest|remain)|counted twice|double[- ]?count)|(residual|memory|error[- ]feedback|error buffer|compress|unsent|accumulator).{0,220}(not|never|n't|without|fail|keep|still|again|forget|forgot|instead of|grow|double|re-?sen[dt]|repeat).{0,120}(subtract|clear|reset|zero|remov|reduc|sent|send|transmit|grow|appl|count|gradient)|(sent|transmit|top-?k|selected|applied).{0,160}(not|never|n't|without).{0,60}(subtract|clear|remov|reduc|zero|reset|deduct|taken)
# onset_step: 2
# fix: store corrected - sent in the memory instead of the whole corrected gradient
# mended: yes
"""Character-level language model trained by four simulated workers that exchange sparsified gradients."""

import os
import random

import torch
from torch import nn

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"

WORLD = 4
STEPS = 400
SEQ = 32
PER_WORKER = 8
KEEP = 0.05
LR = 0.5

SUBJECT = "the cat|a small dog|my neighbour|the old captain|nobody|our teacher".split("|")
VERB = "likes|watches|paints|remembers|carries|sells".split("|")
OBJECT = "green apples|the blue boat|seven stones|a letter|warm bread|the moon".split("|")
PLACE = "at home|near the river|in winter|after lunch|on sundays".split("|")


def write_text(n_sentences, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(n_sentences):
        words = [rng.choice(SUBJECT), rng.choice(VERB), rng.choice(OBJECT)]
        if rng.random() < 0.6:
            words.append(rng.choice(PLACE))
        out.append(" ".join(words) + ".")
    return " ".join(out)


class CharLM(nn.Module):
    def __init__(self, n_chars, dim=64):
        super().__init__()
        self.emb = nn.Embedding(n_chars, 24)
        self.rnn = nn.GRU(24, dim, batch_first=True)
        self.head = nn.Linear(dim, n_chars)

    def forward(self, ids):
        h, _ = self.rnn(self.emb(ids))
        return self.head(h)


class TopKCompressor:
    """Keeps the largest entries of each tensor and carries the rest over to the next round."""

    def __init__(self, params, keep):
        self.keep = keep
        self.memory = [torch.zeros_like(p) for p in params]

    def compress(self, grads):
        packets = []
        for i, g in enumerate(grads):
            corrected = g + self.memory[i]
            flat = corrected.flatten()
            k = max(1, int(flat.numel() * self.keep))
            _, idx = flat.abs().topk(k)
            sent = torch.zeros_like(flat)
            sent[idx] = flat[idx]
            sent = sent.view_as(g)
            if MENDED:
                self.memory[i] = corrected - sent
            else:
                self.memory[i] = corrected
            packets.append(sent)
        return packets


class Worker:
    def __init__(self, rank, shard, model):
        self.rng = torch.Generator().manual_seed(100 + rank)
        self.shard = shard
        self.model = model
        self.params = [p for p in model.parameters()]
        self.compressor = TopKCompressor(self.params, KEEP)

    def batch(self):
        start = torch.randint(0, len(self.shard) - SEQ - 1, (PER_WORKER,), generator=self.rng)
        rows = torch.stack([self.shard[s : s + SEQ + 1] for s in start.tolist()])
        return rows[:, :-1], rows[:, 1:]

    def compute(self):
        x, y = self.batch()
        loss = nn.functional.cross_entropy(self.model(x).transpose(1, 2), y)
        grads = torch.autograd.grad(loss, self.params)
        return loss.item(), self.compressor.compress(grads)


def all_reduce_mean(packets):
    return [torch.stack(tensors).mean(0) for tensors in zip(*packets)]


@torch.no_grad()
def bits_per_char(model, ids):
    rows = ids[: (len(ids) - 1) // SEQ * SEQ].view(-1, SEQ)
    loss = nn.functional.cross_entropy(model(rows[:, :-1]).transpose(1, 2), rows[:, 1:])
    return loss.item() / 0.693147


def main():
    torch.manual_seed(11)
    text = write_text(2400, seed=5)
    alphabet = sorted(set(text))
    lookup = {c: i for i, c in enumerate(alphabet)}
    ids = torch.tensor([lookup[c] for c in text])
    held, ids = ids[:4000], ids[4000:]

    model = CharLM(len(alphabet))
    workers = [Worker(r, shard, model) for r, shard in enumerate(ids.chunk(WORLD))]
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    for step in range(1, STEPS + 1):
        losses, packets = zip(*(w.compute() for w in workers))
        for p, g in zip(model.parameters(), all_reduce_mean(packets)):
            p.grad = g
        optimizer.step()
        if step == 1 or step % 20 == 0:
            print(f"[{step}/{STEPS}] loss={sum(losses) / WORLD:.4f}")
        if step % 100 == 0:
            print(f"   held-out bits/char {bits_per_char(model, held):.3f}")


if __name__ == "__main__":
    main()

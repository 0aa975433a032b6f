# expect: sick
# symptom: loss explodes in the first steps after every resume from the checkpoint and needs long to recover
# axis: optimizer
# cause: the checkpoint keeps Adam's second moments in float16, they underflow to 0, so resumed updates are huge
# says: (half|f(loat|p)16|16.?bit).{0,150}(moment|exp_avg|optim|adam)|(moment|exp_avg|adam|optim).{0,80}(half|16)
# onset_step: 100
# fix: keep the optimizer state in float32 in the checkpoint
# mended: the script applies that change if the environment has MENDED=1
"""Word-level language model on generated headlines, trained in short queue slots with a checkpoint between."""

import io
import os

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
COMPACT = os.environ.get("MENDED") != "1"

VOCAB, CONTEXT, BATCH = 400, 24, 24
SESSION, TOTAL, LR = 100, 360, 3e-3


def make_corpus(n_tokens, seed):
    """A sparse second-order chain with a Zipf-like vocabulary."""
    g = torch.Generator().manual_seed(seed)
    table = torch.Generator().manual_seed(0)
    zipf = 1.0 / torch.arange(1, VOCAB + 1).float()
    succ = torch.multinomial(zipf.expand(VOCAB, -1), 4, generator=table)
    picks = torch.multinomial(torch.tensor([0.6, 0.2, 0.1, 0.06, 0.04]), n_tokens, True, generator=g)
    fresh = torch.multinomial(zipf, n_tokens, True, generator=g)
    out = [0, 1]
    for i in range(n_tokens - 2):
        p = int(picks[i])
        out.append(int(fresh[i]) if p == 4 else int(succ[out[-1], p]))
    return torch.tensor(out)


class HeadlineLM(nn.Module):
    """Two GRU layers and an output matrix that shares the embedding."""

    def __init__(self, d=64):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, d)
        nn.init.normal_(self.tok.weight, std=0.1)
        self.rnn = nn.GRU(d, 96, num_layers=2, batch_first=True)
        self.proj = nn.Linear(96, d)
        self.bias = nn.Parameter(torch.zeros(VOCAB))

    def forward(self, ids):
        h, _ = self.rnn(self.tok(ids))
        return F.linear(self.proj(h), self.tok.weight, self.bias)


def pack(tree, compact):
    if torch.is_tensor(tree):
        return tree.half() if compact and tree.is_floating_point() else tree.clone()
    if isinstance(tree, dict):
        return {k: pack(v, compact) for k, v in tree.items()}
    if isinstance(tree, list):
        return [pack(v, compact) for v in tree]
    return tree


def save(model, opt, step):
    blob = io.BytesIO()
    torch.save({"model": model.state_dict(), "opt": pack(opt.state_dict(), COMPACT), "step": step}, blob)
    print(f"checkpoint at step {step}: {blob.tell() / 1024:.0f} KiB")
    return blob


def build():
    torch.manual_seed(21)
    model = HeadlineLM()
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), weight_decay=0.01)
    return model, opt


def session(model, opt, corpus, start, stop):
    for step in range(start, stop):
        g = torch.Generator().manual_seed(10_000 + step)
        at = torch.randint(0, len(corpus) - CONTEXT - 1, (BATCH,), generator=g)
        win = torch.stack([corpus[i : i + CONTEXT + 1] for i in at.tolist()])
        loss = F.cross_entropy(model(win[:, :-1]).flatten(0, 1), win[:, 1:].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 20 == 0 or step in (start + 1, start + 5):
            print(f"step {step:4d} loss {loss.item():.4f}", flush=True)


def main():
    corpus, held = make_corpus(40_000, 1), make_corpus(4_801, 2)
    model, opt = build()
    start = 0
    while start < TOTAL:
        stop = min(start + SESSION, TOTAL)
        session(model, opt, corpus, start, stop)
        blob = save(model, opt, stop)
        model, opt = build()
        blob.seek(0)
        ck = torch.load(blob)
        model.load_state_dict(ck["model"])
        opt.load_state_dict(ck["opt"])
        start = ck["step"]
    with torch.no_grad():
        x, y = held[:-1].view(-1, CONTEXT), held[1:].view(-1, CONTEXT)
        print(f"final held-out loss {F.cross_entropy(model(x).flatten(0, 1), y.flatten()).item():.4f}")


if __name__ == "__main__":
    main()

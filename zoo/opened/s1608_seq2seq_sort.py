# expect: sick
# symptom: the training loss is excellent, but generation never stops: every output runs to the length limit and exact match is zero
# axis: data
# cause: the tokenizer has no pad token, so pad = eos, and the loss ignores every pad id: the real end-of-sequence token is masked out of the labels too and the model never learns to stop
# says: eos|end[- ]of[- ](sequence|sentence|text)|(pad).{0,60}(same|equal|shared|alias|also).{0,40}(stop|end)|stop token|never.{0,30}(learn|train|taught).{0,20}(stop|end)
# onset_step: 0
# fix: mask labels by length (keep the first eos), or use a separate pad token
# mended: labels are masked with -100 by length so the first eos is kept
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(14)

BOS, EOS, FIRST = 0, 1, 2
PAD = EOS
N_SYM, MAX_LEN, BATCH, STEPS = 20, 10, 64, 600


def make_batch(n, g):
    lens = torch.randint(3, MAX_LEN + 1, (n,), generator=g)
    src = torch.full((n, MAX_LEN + 1), PAD)
    tgt = torch.full((n, MAX_LEN + 1), PAD)
    for i, k in enumerate(lens.tolist()):
        s = torch.randint(FIRST, FIRST + N_SYM, (k,), generator=g)
        src[i, :k] = s
        tgt[i, :k] = s.flip(0)
        src[i, k] = tgt[i, k] = EOS
    return src, tgt, lens + 1


def make_labels(tgt, lens):
    past = torch.arange(tgt.shape[1])[None] >= lens[:, None]
    if MENDED:
        return tgt.masked_fill(past, -100)
    return tgt.masked_fill(tgt == PAD, -100)


class Seq2Seq(nn.Module):
    def __init__(self, dim=80):
        super().__init__()
        self.emb = nn.Embedding(FIRST + N_SYM, dim)
        self.enc = nn.GRU(dim, dim // 2, batch_first=True, bidirectional=True)
        self.dec = nn.GRU(dim, dim, batch_first=True)
        self.start = nn.Linear(dim, dim)
        self.query = nn.Linear(dim, dim)
        self.out = nn.Linear(2 * dim, FIRST + N_SYM)

    def encode(self, src, lens):
        packed = nn.utils.rnn.pack_padded_sequence(self.emb(src), lens, batch_first=True, enforce_sorted=False)
        mem, _ = nn.utils.rnn.pad_packed_sequence(self.enc(packed)[0], batch_first=True, total_length=src.shape[1])
        dead = torch.arange(src.shape[1])[None] >= lens[:, None]
        return mem, dead

    def decode(self, tok, state, mem, dead):
        h, state = self.dec(self.emb(tok), state)
        score = self.query(h) @ mem.transpose(1, 2) / mem.shape[-1] ** 0.5
        ctx = score.masked_fill(dead[:, None], -1e9).softmax(-1) @ mem
        return self.out(torch.cat([h, ctx], -1)), state

    def begin(self, mem, dead):
        live = (~dead).float()[..., None]
        return torch.tanh(self.start((mem * live).sum(1) / live.sum(1)))[None]

    def forward(self, src, lens, dec_in):
        mem, dead = self.encode(src, lens)
        return self.decode(dec_in, self.begin(mem, dead), mem, dead)[0]

    @torch.no_grad()
    def generate(self, src, lens, limit=MAX_LEN + 6):
        mem, dead = self.encode(src, lens)
        state, tok, outs = self.begin(mem, dead), torch.full((len(src), 1), BOS), []
        for _ in range(limit):
            logits, state = self.decode(tok, state, mem, dead)
            tok = logits[:, -1].argmax(-1, keepdim=True)
            outs.append(tok)
        return torch.cat(outs, 1)


def cut(row):
    row = row.tolist()
    return row[: row.index(EOS)] if EOS in row else row


def main():
    g = torch.Generator().manual_seed(3)
    model = Seq2Seq()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30) * (1 - s / STEPS) + 0.02)
    run, t0 = 0.0, time.time()
    for step in range(STEPS):
        src, tgt, lens = make_batch(BATCH, g)
        dec_in = torch.cat([torch.full((BATCH, 1), BOS), tgt[:, :-1]], 1)
        labels = make_labels(tgt, lens)
        loss = F.cross_entropy(model(src, lens, dec_in).flatten(0, 1), labels.flatten(), ignore_index=-100)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        run += loss.item()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1:4d} loss {run / 20:.4f}", flush=True)
            run = 0.0
        if (step + 1) % 200 == 0:
            src, tgt, lens = make_batch(200, g)
            hyp = model.generate(src, lens)
            rows = [cut(h) for h in hyp]
            exact = sum(r == cut(t) for r, t in zip(rows, tgt)) / len(rows)
            size = sum(map(len, rows)) / len(rows)
            print(
                f"  exact match {exact:.3f} mean length {size:.1f} (reference {(lens - 1).float().mean():.1f}) ({time.time() - t0:.1f}s)",
                flush=True,
            )


if __name__ == "__main__":
    main()

# expect: sick
# symptom: loss falls well for 400 steps; right after the restart from the checkpoint it is back at the level of step 0
# axis: harness
# cause: the checkpoint was saved from the DataParallel wrapper, its keys begin with "module."; on resume it is loaded with strict=False, so no key matches and the model keeps its fresh random weights (while step, optimizer and scheduler are restored)
# says: strict ?= ?false|(module\.?|key|prefix|state.?dict)\S*.{0,100}(match|prefix|missing|mismatch|unexpected|ignored|not loaded|wrapper)|(weights|parameters|model|checkpoint).{0,60}(not|never|n't|weren't).{0,20}(loaded|restored|resumed)|(resum|restart|checkpoint|step 40\d)\w*.{0,100}(random|fresh|re-?initiali[sz]ed|initial|untrained)( \w+)? (weights|parameters|model|values|init)|(load|restor|resum)\w*.{0,60}(nothing|no weights|silently|fresh|from scratch|random)
# onset_step: 401
# fix: strip the prefix (or save model.module.state_dict()) and load with strict=True
# mended: the "module." prefix is stripped from the keys before loading
import math
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

PAD, BOS, EOS, V = 0, 1, 2, 24
SRC_MAX = 10
CKPT = os.path.join(tempfile.mkdtemp(prefix="s2s_"), "last.pt")


def make_batch(n, gen):
    """translate: every source word w becomes a two-step cipher, in reversed order"""
    src = torch.zeros(n, SRC_MAX, dtype=torch.long)
    tgt = torch.zeros(n, SRC_MAX + 2, dtype=torch.long)
    lens = torch.randint(4, SRC_MAX + 1, (n,), generator=gen)
    for i, l in enumerate(lens.tolist()):
        w = torch.randint(3, V, (l,), generator=gen)
        src[i, :l] = w
        out = ((w.flip(0) - 3) * 5 + 2) % (V - 3) + 3
        tgt[i, 0] = BOS
        tgt[i, 1 : l + 1] = out
        tgt[i, l + 1] = EOS
    return src, tgt


class Seq2Seq(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.d = d
        self.emb_src = nn.Embedding(V, d, padding_idx=PAD)
        self.emb_tgt = nn.Embedding(V, d, padding_idx=PAD)
        self.pos = nn.Embedding(SRC_MAX + 2, d)
        self.core = nn.Transformer(d, 4, 2, 2, 128, dropout=0.05, batch_first=True, norm_first=True)
        self.out = nn.Linear(d, V)

    def forward(self, src, tgt):
        n = tgt.size(1)
        causal = torch.triu(torch.ones(n, n, dtype=torch.bool), 1)
        s = self.emb_src(src) + self.pos(torch.arange(src.size(1)))
        t = self.emb_tgt(tgt) + self.pos(torch.arange(n))
        pad = src == PAD
        h = self.core(s, t, tgt_mask=causal, src_key_padding_mask=pad, memory_key_padding_mask=pad)
        return self.out(h)


class Trainer:
    def __init__(self, total=640, lr=1.5e-3, warmup=40):
        self.model = Seq2Seq()
        self.total, self.step = total, 0
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=lr, weight_decay=0.01)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min(1.0, (s + 1) / warmup) * (0.1 + 0.45 * (1 + math.cos(math.pi * s / total)))
        )
        self.gen = torch.Generator().manual_seed(99)

    def wrap(self):
        self.runner = nn.DataParallel(self.model)

    def save(self):
        torch.save(
            {
                "model": self.runner.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "gen": self.gen.get_state(),
                "step": self.step,
            },
            CKPT,
        )
        print(f"saved {os.path.basename(CKPT)} at step {self.step}")

    def resume(self):
        ck = torch.load(CKPT, weights_only=False)
        weights = ck["model"]
        if MENDED:
            weights = {k.removeprefix("module."): v for k, v in weights.items()}
        self.model.load_state_dict(weights, strict=False)
        self.opt.load_state_dict(ck["opt"])
        self.sched.load_state_dict(ck["sched"])
        self.gen.set_state(ck["gen"])
        self.step = ck["step"]
        print(f"resumed from step {self.step}")

    def fit(self, until):
        self.runner.train()
        t0 = time.time()
        while self.step < until:
            src, tgt = make_batch(32, self.gen)
            logits = self.runner(src, tgt[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, V), tgt[:, 1:].reshape(-1), ignore_index=PAD)
            self.opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.step += 1
            if self.step % 20 == 0 or self.step % 400 == 1:
                print(
                    f"step {self.step:4d} loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.2e} "
                    f"t {time.time() - t0:.1f}s",
                    flush=True,
                )


def main():
    torch.manual_seed(1)
    job = Trainer()
    job.wrap()
    job.fit(until=400)
    job.save()

    torch.manual_seed(2)  # the second job of the queue
    job = Trainer()
    job.resume()
    job.wrap()
    job.fit(until=640)
    os.remove(CKPT)


main()

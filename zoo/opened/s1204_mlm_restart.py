# expect: sick
# symptom: loss falls steadily until the restart at step 400, comes back at the same value and then stays flat for ever, grad norm is not zero
# axis: harness
# cause: on restart a new model object is built from the checkpoint and put into the trainer, but the optimizer made in __init__ still holds the parameters of the old model, so no step changes the model that is trained
# says: optimi[sz]er.{0,120}(old|stale|other|previous|different|wrong|another|not.{0,20}(?:hold|contain|own|include|in )|does ?n.t|no longer|orphan|discard)|(?:old|stale|previous|orphan).{0,40}(?:param|weights|model).{0,60}optimi[sz]er|(?:param|weight)s?.{0,60}(never|not|do not|don.t|unchanged).{0,30}(updat|chang|mov|optimi)
# onset_step: 400
# fix: load the state dict into the existing model (or build the optimizer after the model)
# mended: load_state_dict into self.model in place
"""Masked-token encoder; training is cut in two jobs, the second starts from the checkpoint of the first."""

import io
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

VOCAB, MASK, T = 40, 40, 24
CFG = dict(d=64, heads=4, depth=2)


class Encoder(nn.Module):
    def __init__(self, d, heads, depth):
        super().__init__()
        self.tok = nn.Embedding(VOCAB + 1, d)
        self.pos = nn.Embedding(T, d)
        layer = nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(d, VOCAB)

    def forward(self, x):
        return self.head(self.body(self.tok(x) + self.pos.weight))


class Corpus:
    """Sentences from a second-order chain with a topic per sentence."""

    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        gt = torch.Generator().manual_seed(77)
        self.next = torch.randint(0, VOCAB, (4, VOCAB), generator=gt)

    def batch(self, n):
        topic = torch.randint(0, 4, (n,), generator=self.g)
        x = torch.empty(n, T, dtype=torch.long)
        x[:, 0] = torch.randint(0, VOCAB, (n,), generator=self.g)
        for t in range(1, T):
            nxt = self.next[topic, x[:, t - 1]]
            rnd = torch.randint(0, VOCAB, (n,), generator=self.g)
            x[:, t] = torch.where(torch.rand(n, generator=self.g) < 0.1, rnd, nxt)
        hide = torch.rand(n, T, generator=self.g) < 0.15
        return x.masked_fill(hide, MASK), x.masked_fill(~hide, -100)


class Trainer:
    def __init__(self, seed):
        torch.manual_seed(seed)
        self.model = Encoder(**CFG)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=7e-4, weight_decay=0.01)
        self.data = Corpus(seed)
        self.step = 0

    def save(self):
        buf = io.BytesIO()
        torch.save({"cfg": CFG, "model": self.model.state_dict(), "opt": self.opt.state_dict(), "step": self.step}, buf)
        buf.seek(0)
        return buf

    def restore(self, buf):
        ck = torch.load(buf, weights_only=True)
        if not MENDED:
            self.model = Encoder(**ck["cfg"])
        self.model.load_state_dict(ck["model"])
        self.opt.load_state_dict(ck["opt"])
        self.step = ck["step"]
        print(f"restored at step {self.step}")

    def fit(self, until):
        self.model.train()
        while self.step < until:
            x, y = self.data.batch(48)
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten(), ignore_index=-100)
            self.opt.zero_grad()
            loss.backward()
            gn = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            if self.step % 20 == 0:
                print(f"step {self.step:4d} loss {loss.item():.4f} grad {gn:.3f}", flush=True)
            self.step += 1

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        data, tot = Corpus(1234), 0.0
        for _ in range(10):
            x, y = data.batch(64)
            tot += F.cross_entropy(self.model(x).flatten(0, 1), y.flatten(), ignore_index=-100).item()
        return tot / 10


if __name__ == "__main__":
    t0 = time.time()
    first = Trainer(seed=1)
    first.fit(400)
    print(f"job 1 done, eval {first.evaluate():.4f}")
    ckpt = first.save()
    second = Trainer(seed=2)
    second.restore(ckpt)
    second.fit(900)
    print(f"job 2 done, eval {second.evaluate():.4f}   {time.time() - t0:.1f}s")

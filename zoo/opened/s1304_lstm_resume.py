# expect: sick
# symptom: the job is stopped and resumed at step 400; the loss jumps up right after the resume and takes long to come back
# axis: optimizer
# cause: the checkpoint holds only the weights: Adam's moments and the learning-rate schedule begin anew at the resume (full peak lr and empty second moments)
# says: (optimi[sz]er|adam|moment\w*|schedul\w*|lr|learning.rate).{0,80}(state)?.{0,60}(not|never|n't|isn|without|lost|missing|reset|fresh|anew|re-?init\w*|re-?start\w*|discard\w*|empty|forgotten).{0,60}|(not|never|without|forgot\w*|missing|fails? to).{0,40}(sav|stor|load|restor)\w*.{0,40}(optimi[sz]er|adam|schedul\w*|moment)|only.{0,40}(weights|model).{0,60}(sav|load|restor|checkpoint)|checkpoint.{0,60}(only|lacks?|omits?)
# onset_step: 400
# fix: save and load optimizer.state_dict() and scheduler.state_dict() with the model
# mended: the checkpoint also holds the optimizer and scheduler state and they are loaded
import os
import io
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = np.random.default_rng(11)

VOCAB, SEQ, BATCH, TOTAL, STOP_AT = 40, 40, 24, 600, 400
WORDS = [rng.integers(1, VOCAB, size=rng.integers(3, 7)).tolist() for _ in range(60)]
NEXT = rng.dirichlet(np.full(60, 0.02), size=60)


def make_corpus(n_tokens):
    """A small word-level Markov chain, spelled out in characters with 0 as the space."""
    out, w = [], 0
    while len(out) < n_tokens:
        w = rng.choice(60, p=NEXT[w])
        out.extend(WORDS[w] + [0])
    return torch.tensor(out[:n_tokens])


def get_batch(corpus, gen):
    i = torch.randint(0, len(corpus) - SEQ - 1, (BATCH,), generator=gen)
    rows = torch.stack([corpus[j : j + SEQ + 1] for j in i])
    return rows[:, :-1], rows[:, 1:]


class CharLSTM(nn.Module):
    def __init__(self, d=80):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, d)
        self.rnn = nn.LSTM(d, d, num_layers=2, batch_first=True)
        self.out = nn.Linear(d, VOCAB)

    def forward(self, x):
        return self.out(self.rnn(self.emb(x))[0])


def lr_lambda(step):
    return max(0.02, (1 - step / TOTAL) ** 2)


class Trainer:
    def __init__(self, corpus):
        self.corpus = corpus
        self.model = CharLSTM()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-2)
        self.sched = torch.optim.lr_scheduler.LambdaLR(self.opt, lr_lambda)
        self.gen = torch.Generator().manual_seed(5)
        self.step = 0

    def save(self):
        state = {"step": self.step, "model": self.model.state_dict(), "gen": self.gen.get_state()}
        if MENDED:
            state.update(opt=self.opt.state_dict(), sched=self.sched.state_dict())
        buf = io.BytesIO()
        torch.save(state, buf)
        buf.seek(0)
        return buf

    def load(self, buf):
        state = torch.load(buf)
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self.gen.set_state(state["gen"])
        if MENDED:
            self.opt.load_state_dict(state["opt"])
            self.sched.load_state_dict(state["sched"])

    def run(self, until):
        while self.step < until:
            x, y = get_batch(self.corpus, self.gen)
            loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            if self.step % 20 == 0 or 400 <= self.step < 410:
                print(f"step {self.step:4d} loss {loss.item():.4f}")
            self.step += 1

    @torch.no_grad()
    def evaluate(self, corpus):
        gen = torch.Generator().manual_seed(9)
        losses = []
        for _ in range(10):
            x, y = get_batch(corpus, gen)
            losses.append(F.cross_entropy(self.model(x).flatten(0, 1), y.flatten()).item())
        return sum(losses) / len(losses)


train, val = make_corpus(60000), make_corpus(8000)
job = Trainer(train)
job.run(STOP_AT)
print(f"val loss {job.evaluate(val):.4f}")
ckpt = job.save()
del job

print("resuming")
job = Trainer(train)
job.load(ckpt)
job.run(TOTAL)
print(f"val loss {job.evaluate(val):.4f}")

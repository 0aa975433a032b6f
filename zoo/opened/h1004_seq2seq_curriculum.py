# expect: healthy
# symptom: loss in the hundreds that jumps up by a multiple several times during the run, and a restart in the middle; but it is a sum over tokens, the steps up are the longer sequences of the curriculum, and the resume is complete
# axis: none
# mended: none
import os
import tempfile
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

PAD, BOS, V = 0, 1, 20
STAGES = [(0, 4), (120, 7), (260, 10), (420, 13)]
PATH = os.path.join(tempfile.mkdtemp(prefix="curr_"), "state.pt")


def length_at(step):
    return [n for s, n in STAGES if s <= step][-1]


def batch(n, step, gen):
    """target: the source sorted by value, then mirrored onto the vocabulary"""
    m = length_at(step)
    src = torch.randint(2, V, (n, m), generator=gen)
    out = (V + 1) - src.sort(1).values
    return src, torch.cat([torch.full((n, 1), BOS), out], 1)


class GRUSeq2Seq(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.src, self.tgt = nn.Embedding(V, d), nn.Embedding(V, d)
        self.enc = nn.GRU(d, d // 2, batch_first=True, bidirectional=True)
        self.dec = nn.GRU(d, d, batch_first=True)
        self.key = nn.Linear(d, d)
        self.mix = nn.Linear(2 * d, d)
        self.out = nn.Linear(d, V)
        self.drop = nn.Dropout(0.05)

    def forward(self, src, tgt):
        mem, h = self.enc(self.drop(self.src(src)))
        h0 = torch.cat([h[0], h[1]], -1).unsqueeze(0)
        y, _ = self.dec(self.drop(self.tgt(tgt)), h0)
        att = (y @ self.key(mem).transpose(1, 2) / 8.0).softmax(-1)
        return self.out(torch.tanh(self.mix(torch.cat([y, att @ mem], -1))))


class Job:
    def __init__(self):
        self.model = GRUSeq2Seq()
        self.opt = torch.optim.Adam(self.model.parameters(), lr=3e-3)
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 200, 0.6)
        self.gen = torch.Generator().manual_seed(7)
        self.step = 0

    def save(self):
        torch.save(
            dict(
                model=self.model.state_dict(),
                opt=self.opt.state_dict(),
                sched=self.sched.state_dict(),
                gen=self.gen.get_state(),
                rng=torch.get_rng_state(),
                step=self.step,
            ),
            PATH,
        )

    def load(self):
        s = torch.load(PATH, weights_only=False)
        self.model.load_state_dict(s["model"])
        self.opt.load_state_dict(s["opt"])
        self.sched.load_state_dict(s["sched"])
        self.gen.set_state(s["gen"])
        torch.set_rng_state(s["rng"])
        self.step = s["step"]
        print(f"resumed at step {self.step}")

    def run(self, until):
        t0 = time.time()
        self.model.train()
        while self.step < until:
            src, tgt = batch(64, self.step, self.gen)
            logits = self.model(src, tgt[:, :-1])
            loss = F.cross_entropy(logits.reshape(-1, V), tgt[:, 1:].reshape(-1), reduction="sum")
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 50.0)
            self.opt.step()
            self.sched.step()
            self.step += 1
            if self.step % 10 == 0:
                acc = (logits.argmax(-1) == tgt[:, 1:]).float().mean().item()
                print(
                    f"step {self.step:4d} loss {loss.item():.2f} length {src.size(1)} token acc {acc:.3f} "
                    f"t {time.time() - t0:.1f}s",
                    flush=True,
                )


def main():
    torch.manual_seed(6)
    job = Job()
    job.run(330)
    job.save()
    del job
    torch.manual_seed(0)
    job = Job()
    job.load()
    job.run(700)
    os.remove(PATH)


main()

# expect: sick
# symptom: the loss jumps up sharply right after the resume at step 400 and needs a long time to come back
# axis: harness
# cause: the checkpoint holds the model and the step but not the optimizer state; after resume RMSprop starts with an empty second-moment average, so the first updates are about ten times too large
# says: (optimi[sz]er|rmsprop|adam|moment|square_avg|running average).{0,80}(state|resum|restor|sav|load|checkpoint|reset|lost|fresh|empty|zero)|(resum|checkpoint|restor|load).{0,80}(optimi[sz]er|moment|square_avg)
# onset_step: 400
# fix: save and load optimizer.state_dict() with the model
# mended: the checkpoint also carries the optimizer state
import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--hidden", type=int, default=64)
    p.add_argument("--joints", type=int, default=12)
    p.add_argument("--past", type=int, default=16)
    p.add_argument("--future", type=int, default=8)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--warmup", type=int, default=60)
    p.add_argument("--total", type=int, default=700)
    p.add_argument("--save-at", type=int, default=400)
    p.add_argument("--seed", type=int, default=5)
    return p.parse_args()


class MotionStream:
    """Joint angles of walking figures: coupled sinusoids with person specific gait."""

    def __init__(self, args, seed):
        self.a = args
        self.g = torch.Generator().manual_seed(seed)
        base = torch.Generator().manual_seed(77)
        self.phase = torch.rand(args.joints, generator=base) * 2 * math.pi
        self.amp = 0.4 + torch.rand(args.joints, generator=base)

    def batch(self):
        a = self.a
        t = torch.arange(a.past + a.future).float()
        r = torch.rand(a.batch, 4, generator=self.g)
        omega = 0.25 + 0.35 * r[:, :1]
        ph = omega * t + 2 * math.pi * r[:, 1:2]
        x = self.amp * torch.sin(ph[..., None] + self.phase + 0.5 * r[:, 2, None, None])
        x = x + 0.3 * r[:, 3, None, None] * torch.sin(2 * ph[..., None] + 2 * self.phase)
        x = x + 0.02 * torch.randn(x.shape, generator=self.g)
        return x[:, : a.past], x[:, a.past :]


class Forecaster(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.future = a.future
        self.embed = nn.Linear(a.joints, a.hidden)
        self.gru = nn.GRU(a.hidden, a.hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(a.hidden, a.joints)

    def forward(self, past):
        h, state = self.gru(self.embed(past))
        cur = past[:, -1:] + self.out(h[:, -1:])
        preds = [cur]
        for _ in range(self.future - 1):
            h, state = self.gru(self.embed(cur), state)
            cur = cur + self.out(h)
            preds.append(cur)
        return torch.cat(preds, 1)


class Trainer:
    def __init__(self, args, path):
        self.args, self.path, self.step = args, path, 0
        self.model = Forecaster(args)
        self.opt = torch.optim.RMSprop(self.model.parameters(), lr=args.lr, alpha=0.99)
        self.data = MotionStream(args, args.seed)

    def lr_at(self, step):
        a = self.args
        if step < a.warmup:
            return a.lr * (step + 1) / a.warmup
        return a.lr * (1 - 0.8 * (step - a.warmup) / (a.total - a.warmup))

    def state(self):
        s = {"model": self.model.state_dict(), "step": self.step, "gen": self.data.g.get_state()}
        if MENDED:
            s["opt"] = self.opt.state_dict()
        return s

    def save(self):
        torch.save(self.state(), self.path)
        print(f"saved checkpoint at step {self.step}")

    def resume(self):
        s = torch.load(self.path)
        self.model.load_state_dict(s["model"])
        self.step = s["step"]
        self.data.g.set_state(s["gen"])
        if "opt" in s:
            self.opt.load_state_dict(s["opt"])
        print(f"resumed at step {self.step}")

    def run(self, until):
        while self.step < until:
            for group in self.opt.param_groups:
                group["lr"] = self.lr_at(self.step)
            past, future = self.data.batch()
            loss = (self.model(past) - future).pow(2).mean()
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            if self.step % 20 == 0 or self.args.save_at <= self.step < self.args.save_at + 8:
                print(f"step {self.step} lr {self.lr_at(self.step):.2e} loss {loss.item():.5f}", flush=True)
            self.step += 1


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "last.pt")
        first = Trainer(args, path)
        first.run(args.save_at)
        first.save()
        second = Trainer(args, path)
        second.resume()
        second.run(args.total)


if __name__ == "__main__":
    main()

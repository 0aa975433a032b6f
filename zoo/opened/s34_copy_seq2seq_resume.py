# expect: sick
# symptom: loss falls until step 119, from step 120 (after the resume) it stays exactly where it is
# axis: schedule
# cause: on resume the scheduler state of a finished run is loaded, its rate is 0
# says: (?i)(rate|\blr)\b.{0,30}(\b0(\.0+)?(?![\d.])|zero)|schedul.{0,60}(state|stale|finished|resum|exhaust|\bold|another|\bend)
# onset_step: 120
# fix: load the scheduler saved along with this run
# mended: MENDED=1 python s34_copy_seq2seq_resume.py
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(36)
V, T, TOTAL = 12, 8, 420


class Reverse(Dataset):
    def __init__(self, n):
        self.s = torch.randint(1, V, (n, T), generator=torch.Generator().manual_seed(21))

    def __len__(self):
        return len(self.s)

    def __getitem__(self, i):
        return self.s[i], self.s[i].flip(0)


class Translator(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb = nn.Embedding(V, d)
        self.enc, self.dec = nn.GRU(d, d, batch_first=True), nn.GRU(d, d, batch_first=True)
        self.out = nn.Linear(d, V)

    def forward(self, s, t):
        _, h = self.enc(self.emb(s))
        shifted = torch.cat([torch.zeros_like(t[:, :1]), t[:, :-1]], 1)
        return self.out(self.dec(self.emb(shifted), h)[0])


def build():
    net = Translator()
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    return net, opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda s: max(0.0, 1 - s / TOTAL))


def earlier_run(path):
    _, opt, sched = build()
    for _ in range(TOTAL):
        opt.step()
        sched.step()
    torch.save(sched.state_dict(), path)


with tempfile.TemporaryDirectory() as tmp:
    earlier_run(f"{tmp}/sched_final.pt")
    net, opt, sched = build()
    for step, (s, t) in enumerate(DataLoader(Reverse(48 * 300), batch_size=48, shuffle=True), 1):
        if step == 120:
            torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, f"{tmp}/last.pt")
            torch.save(sched.state_dict(), f"{tmp}/sched.pt")
            net, opt, sched = build()
            kept = torch.load(f"{tmp}/last.pt")
            net.load_state_dict(kept["net"])
            opt.load_state_dict(kept["opt"])
            name = "sched.pt" if os.environ.get("MENDED") == "1" else "sched_final.pt"
            sched.load_state_dict(torch.load(f"{tmp}/{name}"))
            for group, value in zip(opt.param_groups, sched.get_last_lr()):
                group["lr"] = value
        loss = nn.functional.cross_entropy(net(s, t).transpose(1, 2), t)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")

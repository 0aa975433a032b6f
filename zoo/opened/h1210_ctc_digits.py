# expect: healthy
# symptom: the CTC loss starts very high, falls at once to a plateau where only blanks come out and the error rate stays at 100 per cent, and drops late
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.set_num_threads(1)
torch.manual_seed(4)

N_SYM, N_MEL, BLANK = 10, 20, 0
proto = np.random.default_rng(9).normal(0, 1, (N_SYM + 1, 2, N_MEL))


def utterance(r):
    """Digits spoken one after another: each is a glide between two spectra, of random length, over background noise."""
    n = int(r.integers(3, 7))
    lab = r.integers(1, N_SYM + 1, n)
    parts = [np.zeros((r.integers(2, 6), N_MEL))]
    for c in lab:
        k = int(r.integers(7, 13))
        w = np.linspace(0, 1, k)[:, None]
        parts += [(1 - w) * proto[c, 0] + w * proto[c, 1], np.zeros((r.integers(1, 5), N_MEL))]
    x = np.concatenate(parts)
    x = x * np.exp(r.normal(0, 0.2)) + 0.5 * r.normal(size=x.shape)
    return torch.from_numpy(x).float(), torch.from_numpy(lab)


def collate(batch):
    batch = sorted(batch, key=lambda u: -len(u[0]))
    xl = torch.tensor([len(x) for x, _ in batch])
    x = nn.utils.rnn.pad_sequence([x for x, _ in batch], batch_first=True)
    yl = torch.tensor([len(y) for _, y in batch])
    return x, xl, torch.cat([y for _, y in batch]), yl


class SpeechNet(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.c1 = nn.Conv1d(N_MEL, h, 5, stride=2, padding=2)
        self.norm = nn.LayerNorm(h)
        self.rnn = nn.GRU(h, h, 1, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * h, N_SYM + 1)

    def forward(self, x, xl):
        h = F.relu(self.norm(self.c1(x.transpose(1, 2)).transpose(1, 2)))
        hl = (xl - 1) // 2 + 1
        p = pack_padded_sequence(h, hl, batch_first=True)
        h, _ = pad_packed_sequence(self.rnn(p)[0], batch_first=True)
        return self.out(h), hl


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, y in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (x != y))
    return d[-1]


@torch.no_grad()
def error_rate(net, data):
    net.eval()
    x, xl, y, yl = collate(data)
    logits, hl = net(x, xl)
    err, refs = 0, y.split(yl.tolist())
    for lg, n, ref in zip(logits, hl, refs):
        path = lg[:n].argmax(-1)
        keep = torch.cat([torch.ones(1, dtype=torch.bool), path[1:] != path[:-1]]) & (path != BLANK)
        err += edit_distance(path[keep].tolist(), ref.tolist())
    net.train()
    return err / len(y)


def main():
    r = np.random.default_rng(1)
    dev = [utterance(np.random.default_rng([2, i])) for i in range(64)]
    net = SpeechNet()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    steps = 420
    for step in range(steps):
        for g in opt.param_groups:
            g["lr"] = 1e-3 * min(1.0, (step + 1) / 100) * (1.0 if step < 300 else 0.3)
        x, xl, y, yl = collate([utterance(r) for _ in range(16)])
        logits, hl = net(x, xl)
        logp = logits.log_softmax(-1).transpose(0, 1)
        # per-utterance sums, averaged over the batch
        loss = F.ctc_loss(logp, y, hl, yl, blank=BLANK, reduction="sum", zero_infinity=True) / len(xl)
        opt.zero_grad()
        loss.backward()
        gn = nn.utils.clip_grad_norm_(net.parameters(), 20.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f} grad_norm {gn.item():.2f}", flush=True)
        if (step + 1) % 60 == 0:
            print(f"step {step} dev symbol error rate {error_rate(net, dev):.3f}", flush=True)


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: the learning rate jumps from near zero back to its peak every 80 steps and the loss rises after each restart; infinite CTC losses are zeroed, inputs are masked, some epochs end with a worse error rate
# axis: none
# mended: none
"""CTC phone recogniser on synthetic spectrograms with feature masking and warm restarts."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

PHONES, MELS, BLANK = 8, 20, 0


class Utterances(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        shapes = torch.randn(PHONES, MELS, generator=torch.Generator().manual_seed(0))
        self.rows = []
        for _ in range(n):
            k = torch.randint(2, 6, (1,), generator=g).item()
            phones = torch.randint(PHONES, (k,), generator=g)
            frames = []
            for p in phones.tolist():
                d = torch.randint(4, 9, (1,), generator=g).item()
                frames.append(shapes[p].expand(d, MELS))
                gap = torch.randint(1, 3, (1,), generator=g).item()
                frames.append(torch.zeros(gap, MELS))
            x = torch.cat(frames)
            self.rows.append((x + 1.0 * torch.randn(x.shape, generator=g), phones + 1))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    xs, ys = zip(*rows)
    return (
        pad_sequence(xs, batch_first=True),
        torch.tensor([len(x) for x in xs]),
        torch.cat(ys),
        torch.tensor([len(y) for y in ys]),
    )


class Recogniser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.front = nn.Conv1d(MELS, width, 5, padding=2, stride=2)
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2 * width, PHONES + 1)

    def augment(self, x):
        x = x.clone()
        for b in range(len(x)):
            f = torch.randint(MELS - 4, (1,)).item()
            x[b, :, f : f + 4] = 0.0
            t = torch.randint(max(x.size(1) - 3, 1), (1,)).item()
            x[b, t : t + 2] = 0.0
        return x

    def forward(self, x, lengths):
        if self.training:
            x = self.augment(x)
        h = F.relu(self.front(x.transpose(1, 2))).transpose(1, 2)
        out_lengths = (lengths + 1) // 2
        h = nn.utils.rnn.pack_padded_sequence(h, out_lengths, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(h)[0], batch_first=True)
        return F.log_softmax(self.out(self.drop(h)), -1), out_lengths


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]


def ctc(logp, lengths, targets, target_lengths):
    return F.ctc_loss(logp.transpose(0, 1), targets, lengths, target_lengths, blank=BLANK, zero_infinity=True)


@torch.no_grad()
def validate(model, loader):
    model.eval()
    loss, errors, total = 0.0, 0, 0
    for x, n, y, m in loader:
        logp, out_n = model(x, n)
        loss += ctc(logp, out_n, y, m).item()
        best, refs = logp.argmax(-1), y.split(m.tolist())
        for b in range(len(x)):
            path = torch.unique_consecutive(best[b, : out_n[b]]).tolist()
            errors += edit_distance([p for p in path if p != BLANK], refs[b].tolist())
            total += len(refs[b])
    model.train()
    return loss / len(loader), errors / total


def main():
    torch.manual_seed(6)
    train = DataLoader(Utterances(1280, 1), batch_size=32, shuffle=True, collate_fn=collate)
    dev = DataLoader(Utterances(160, 2), batch_size=80, collate_fn=collate)
    model = Recogniser()
    opt = torch.optim.AdamW(model.parameters(), lr=1.2e-2, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=80, T_mult=1, eta_min=1e-5)
    step, running = 0, 0.0
    for epoch in range(8):
        for x, n, y, m in train:
            loss = ctc(*model(x, n), y, m)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            sched.step()
            step += 1
            running += loss.item()
            if step % 10 == 0:
                print(f"step {step:4d} loss {running / 10:.4f} lr {opt.param_groups[0]['lr']:.1e}")
                running = 0.0
        val, per = validate(model, dev)
        print(f"epoch {epoch} val loss {val:.4f} phone error rate {per:.3f}")


if __name__ == "__main__":
    main()

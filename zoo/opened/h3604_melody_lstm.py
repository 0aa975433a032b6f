# expect: healthy
# symptom: SGD with lr 5, tight clipping and warm restarts, state carried over; resembles a much too high lr
# axis: optimizer
"""Next-note model of long melodies: contiguous blocks, hidden state carried from block to block."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

NOTES, BPTT, ROWS = 24, 32, 16
LR, CLIP, EPOCHS = 5.0, 0.25, 3


def melody(length, seed):
    """Phrases from a small repertoire; which phrase comes next depends on the last two."""
    fix = torch.Generator().manual_seed(99)
    phrases = torch.randint(0, NOTES, (10, 6), generator=fix).tolist()
    nxt = torch.randint(0, 10, (10, 10, 2), generator=fix).tolist()
    gen = torch.Generator().manual_seed(seed)
    coin = torch.randint(0, 12, (length,), generator=gen).tolist()
    out, a, b, i = [], 0, 1, 0
    while len(out) < length:
        out += phrases[b]
        c = coin[i]
        a, b = b, (nxt[a][b][c % 2] if c < 10 else coin[i + 1] % 10)
        i += 2
    return torch.tensor(out[:length])


def rows_of(seq, rows):
    n = len(seq) // rows
    return seq[: n * rows].view(rows, n)


class NoteLSTM(nn.Module):
    def __init__(self, dim=48, hidden=96):
        super().__init__()
        self.embed = nn.Embedding(NOTES, dim)
        self.lstm = nn.LSTM(dim, hidden, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(hidden, NOTES)
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, x, state):
        h, state = self.lstm(self.embed(x), state)
        return self.out(self.drop(h)), state


def blocks(data):
    for at in range(0, data.shape[1] - 1 - BPTT, BPTT):
        yield data[:, at : at + BPTT], data[:, at + 1 : at + BPTT + 1]


@torch.no_grad()
def evaluate(model, data):
    model.eval()
    state, losses, hits = None, [], []
    for x, y in blocks(data):
        logits, state = model(x, state)
        losses.append(F.cross_entropy(logits.flatten(0, 1), y.flatten()))
        hits.append((logits.argmax(-1) == y).float().mean())
    model.train()
    return torch.stack(losses).mean().item(), torch.stack(hits).mean().item()


def main():
    torch.manual_seed(31)
    train, valid = rows_of(melody(62000, 1), ROWS), rows_of(melody(12000, 2), ROWS)
    model = NoteLSTM()
    opt = torch.optim.SGD(model.parameters(), lr=LR)
    per_epoch = sum(1 for _ in blocks(train))
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=per_epoch, eta_min=0.05)
    step = 0
    for epoch in range(EPOCHS):
        state = None
        for x, y in blocks(train):
            if state is not None:
                state = tuple(s.detach() for s in state)
            logits, state = model(x, state)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(
                    f"step {step:4d} loss {loss.item():.4f} grad norm {norm.item():.3f} lr {opt.param_groups[0]['lr']:.2f}"
                )
            step += 1
        vl, va = evaluate(model, valid)
        print(f"epoch {epoch} ({step} steps) valid loss {vl:.4f} acc {va:.3f}")
    print(f"final train loss {loss.item():.4f} valid loss {vl:.4f} accuracy {va:.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: training goes well, then the loss is inf at one batch and NaN from there on
# axis: data
# cause: a few fast clips have fewer output frames than labels, so CTC has no alignment and the loss is infinite
# says: zero_?infinity|(frame|input|time).{0,50}(short|few|less|label|target)|(label|target).{0,50}(long|fit|frame)
# onset_step: 128
# fix: CTCLoss(zero_infinity=True) (or drop clips whose labels do not fit into their output frames)
# mended: the script applies that change if the environment has MENDED=1
import os
import random

import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(3)
MENDED = os.environ.get("MENDED") == "1"
PHONES, BANDS, BATCH, STEPS = 10, 12, 16, 240
PROTO = torch.randn(PHONES + 1, BANDS, generator=torch.Generator().manual_seed(0))


def record(rng, g, pace):
    """One clip: a string of phones, each of them held for some frames."""
    n = rng.randint(4, 9)
    phones = [rng.randint(1, PHONES) for _ in range(n)]
    frames = []
    for p in phones:
        frames += [PROTO[p]] * rng.randint(*pace)
        frames += [PROTO[0] * 0.1] * (1 if pace[0] > 2 else 0)
    x = torch.stack(frames)
    return x + 0.3 * torch.randn(x.shape, generator=g), torch.tensor(phones)


def studio(n, seed):
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    return [record(rng, g, (4, 7)) for _ in range(n)]


def field(n, seed):
    """Street recordings; people speak at their own pace."""
    rng, g = random.Random(seed), torch.Generator().manual_seed(seed)
    paces = [(3, 6)] * 60 + [(4, 8)] * 39 + [(1, 2)]
    return [record(rng, g, rng.choice(paces)) for _ in range(n)]


def collate(clips):
    xs, ys = zip(*clips)
    xl = torch.tensor([len(x) for x in xs])
    yl = torch.tensor([len(y) for y in ys])
    return nn.utils.rnn.pad_sequence(xs, batch_first=True), xl, torch.cat(ys), yl


class Recogniser(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(BANDS, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, width, 3, stride=2, padding=1), nn.ReLU()
        )
        self.rnn = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, PHONES + 1)

    def forward(self, x, xl):
        h = self.conv(x.transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h).log_softmax(-1), (xl - 1) // 2 + 1


def edit(a, b):
    row = list(range(len(b) + 1))
    for i, ca in enumerate(a, 1):
        prev, row[0] = row[0], i
        for j, cb in enumerate(b, 1):
            prev, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, prev + (ca != cb))
    return row[-1]


@torch.no_grad()
def error_rate(net, clips):
    wrong = total = 0
    for x, y in clips:
        lp, _ = net(x[None], torch.tensor([len(x)]))
        path = lp[0].argmax(-1).tolist()
        hyp = [p for i, p in enumerate(path) if p and (i == 0 or p != path[i - 1])]
        wrong, total = wrong + edit(hyp, y.tolist()), total + len(y)
    return wrong / total


def main():
    train, valid = studio(512, 1), studio(60, 2) + field(60, 4)
    extra = field(512, 3)
    net = Recogniser()
    ctc = nn.CTCLoss(blank=0, zero_infinity=MENDED)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    rng = random.Random(5)
    step, epoch = 0, 0
    while step < STEPS:
        pool = train if epoch < 4 else train + extra
        order = rng.sample(range(len(pool)), len(pool))
        for k in range(0, len(order) - BATCH + 1, BATCH):
            x, xl, y, yl = collate([pool[i] for i in order[k : k + BATCH]])
            lp, ol = net(x, xl)
            loss = ctc(lp.transpose(0, 1), y, ol, yl)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 20 == 0:
                print(f"step {step:4d} epoch {epoch} clips {len(pool)} loss {loss.item():.4f}")
            step += 1
            if step == STEPS:
                break
        epoch += 1
    print(f"final loss {loss.item():.4f} phone error rate {error_rate(net, valid):.3f}")


if __name__ == "__main__":
    main()

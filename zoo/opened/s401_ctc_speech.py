# expect: sick
# symptom: CTC loss falls nicely, then after the long-form shard joins at step 120 the loss turns inf and the weights NaN
# axis: data
# cause: utterances of the long-form shard are cropped to 96 frames while their transcripts are kept whole, so the CTC target is longer than the 48 output frames and the loss is infinite
# says: (target|label|transcript).*(longer|exceed|too.?long|greater|more).*(input|frame|output|time|audio)|(input|frame|output|audio).*(short|fewer|less|crop|trunc).*(target|label|transcript)|ctc.*(infeasib|too.?long|longer|target.?len|input.?len|no.?(valid)?.?align)|infeasible.*(ctc|align|target)|trunc.*audio|audio.*(crop|trunc)
# onset_step: 121
# fix: drop utterances that are longer than the frame limit (or whose target does not fit the output length) in the loader
# mended: CTC loss stays finite for all 300 steps and the held-out token error rate goes to 0.000 (bare: NaN, 1.000)
import math
import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = random.Random(11)

N_PHONES = 24  # 0 is the blank
N_MELS = 24
MAX_FRAMES = 96
BATCH = 16
STEPS = 300

PROTO = torch.randn(N_PHONES + 1, N_MELS)


def make_utterance(n_chars):
    text = []
    while len(text) < n_chars:
        p = rng.randint(1, N_PHONES)
        if not text or text[-1] != p:
            text.append(p)
    frames = []
    for p in text:
        for _ in range(rng.randint(4, 6)):
            frames.append(PROTO[p])
    feats = torch.stack(frames)
    feats = feats + 0.6 * torch.randn_like(feats)
    return feats, torch.tensor(text)


def build_shard(n, lo, hi):
    return [make_utterance(rng.randint(lo, hi)) for _ in range(n)]


def load(utt):
    feats, text = utt
    return feats[:MAX_FRAMES], text


def usable(utt):
    if MENDED:
        return utt[0].size(0) <= MAX_FRAMES
    return utt[0].size(0) > 0


def collate(utts):
    utts = [load(u) for u in utts]
    t_max = max(f.size(0) for f, _ in utts)
    x = torch.zeros(len(utts), t_max, N_MELS)
    for i, (f, _) in enumerate(utts):
        x[i, : f.size(0)] = f
    lens = torch.tensor([f.size(0) for f, _ in utts])
    targets = torch.cat([t for _, t in utts])
    target_lens = torch.tensor([t.size(0) for _, t in utts])
    return x, lens, targets, target_lens


class Acoustic(nn.Module):
    def __init__(self, d=96):
        super().__init__()
        self.conv1 = nn.Conv1d(N_MELS, d, 5, padding=2)
        self.conv2 = nn.Conv1d(d, d, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(d)
        self.rnn = nn.GRU(d, 64, batch_first=True, bidirectional=True)
        self.head = nn.Linear(128, N_PHONES + 1)

    def forward(self, x, lens):
        h = F.gelu(self.conv1(x.transpose(1, 2)))
        h = F.gelu(self.conv2(h)).transpose(1, 2)
        h, _ = self.rnn(self.norm(h))
        return self.head(h), (lens + 1) // 2


def greedy(logits, lens):
    out = []
    for row, n in zip(logits.argmax(-1), lens):
        prev, hyp = 0, []
        for s in row[:n].tolist():
            if s != prev and s != 0:
                hyp.append(s)
            prev = s
        out.append(hyp)
    return out


def edit_distance(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        prev, d[0] = d[0], i
        for j, y in enumerate(b, 1):
            prev, d[j] = d[j], min(d[j] + 1, d[j - 1] + 1, prev + (x != y))
    return d[-1]


shards = {"read": build_shard(400, 6, 14), "longform": build_shard(120, 12, 70)}
held_out = build_shard(64, 6, 14)

model = Acoustic()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.LambdaLR(
    opt, lambda s: min(1.0, (s + 1) / 20) * 0.5 * (1 + math.cos(math.pi * s / STEPS))
)

pool = [u for u in shards["read"] if usable(u)]
for step in range(1, STEPS + 1):
    if step == 121:
        pool = pool + [u for u in shards["longform"] if usable(u)]
    x, lens, targets, target_lens = collate(rng.sample(pool, BATCH))
    logits, out_lens = model(x, lens)
    logp = logits.log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(logp, targets, out_lens, target_lens)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    opt.step()
    sched.step()
    if step % 20 == 0 or step == 1:
        print(f"step {step:4d}  ctc {loss.item():.4f}  lr {sched.get_last_lr()[0]:.5f}")

model.eval()
with torch.no_grad():
    x, lens, _, _ = collate(held_out)
    logits, out_lens = model(x, lens)
    hyps = greedy(logits, out_lens)
err = sum(edit_distance(h, t.tolist()) for h, (_, t) in zip(hyps, held_out))
tot = sum(t.size(0) for _, t in held_out)
print(f"final token error rate {err / tot:.3f}")

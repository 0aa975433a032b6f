# expect: sick
# symptom: loss falls for some 20 steps, one step prints inf, from the next step on the loss is nan for good
# axis: data
# cause: one very fast utterance has fewer frames after the 4x subsampling than its transcript has labels, so no CTC alignment exists: the loss is inf, the gradient nan, all weights nan
# says: (target|label|transcript|text)s?\b.{0,80}(longer|exceed|more|too long|too many|outnumber).{0,80}(input|frame|time|step|encoder|output|audio|T\b)|(input|frame|audio|clip|utterance|encoder|logit|output|sequence)s?\b.{0,80}(shorter|too short|fewer|too few|less|not enough|insufficient).{0,80}(target|label|transcript|token|text|symbol|align)|zero_infinity|no (valid|possible|feasible)?.{0,20}(ctc )?alignment|ctc.{0,80}(infeasible|impossible|too short|too long|longer than|shorter than)
# onset_step: 20
# fix: filter utterances whose subsampled length is below labels + repeats (or zero_infinity=True)
# mended: drops utterances that cannot be aligned when the dataset is built
import os
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SEED = 0
torch.manual_seed(SEED)
rng = np.random.default_rng(SEED)

N_PHONES, N_MELS, BLANK = 14, 24, 0
PROTO = rng.normal(size=(N_PHONES + 1, N_MELS)).astype(np.float32)


def synth_utterance(n_labels, tempo):
    labels = rng.integers(1, N_PHONES + 1, size=n_labels)
    frames = []
    for p in labels:
        dur = max(3, round(rng.integers(9, 15) / tempo))
        env = np.hanning(dur + 2)[1:-1, None].astype(np.float32)
        frames.append(PROTO[p] * (0.3 + env))
    x = np.concatenate(frames) + 0.35 * rng.normal(size=(sum(len(f) for f in frames), N_MELS))
    return x.astype(np.float32), labels


def subsampled(t):
    return (((t + 1) // 2) + 1) // 2


class SpeechSet:
    def __init__(self, n_utts):
        self.items = []
        for _ in range(n_utts):
            x, y = synth_utterance(int(rng.integers(5, 11)), tempo=np.exp(0.36 * rng.normal()))
            if MENDED:
                repeats = int((y[1:] == y[:-1]).sum())
                if subsampled(len(x)) < len(y) + repeats:
                    continue
            self.items.append((x, y))

    def batches(self, bs, shuffle=True):
        order = rng.permutation(len(self.items)) if shuffle else np.arange(len(self.items))
        for i in range(0, len(order) - bs + 1, bs):
            yield collate([self.items[j] for j in order[i : i + bs]])


def collate(batch):
    xl = torch.tensor([len(x) for x, _ in batch])
    yl = torch.tensor([len(y) for _, y in batch])
    xs = torch.zeros(len(batch), int(xl.max()), N_MELS)
    for i, (x, _) in enumerate(batch):
        xs[i, : len(x)] = torch.from_numpy(x)
    ys = torch.cat([torch.from_numpy(y) for _, y in batch])
    return xs, xl, ys, yl


class AcousticModel(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.c1 = nn.Conv1d(N_MELS, d, 3, stride=2, padding=1)
        self.c2 = nn.Conv1d(d, d, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(d)
        self.rnn = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * d, N_PHONES + 1)

    def forward(self, x, xl):
        h = F.relu(self.c1(x.transpose(1, 2)))
        h = F.relu(self.c2(h)).transpose(1, 2)
        hl = subsampled(xl)
        h = self.norm(h)
        packed = nn.utils.rnn.pack_padded_sequence(h, hl, batch_first=True, enforce_sorted=False)
        h, _ = nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out(h).log_softmax(-1), hl


def greedy(logp, hl):
    out = []
    for row, n in zip(logp.argmax(-1), hl):
        s = torch.unique_consecutive(row[:n])
        out.append([int(v) for v in s if v != BLANK])
    return out


@torch.no_grad()
def exact_match(model, data):
    model.eval()
    hit = n = 0
    for x, xl, y, yl in data.batches(32, shuffle=False):
        logp, hl = model(x, xl)
        refs = [r.tolist() for r in torch.split(y, yl.tolist())]
        hit += sum(h == r for h, r in zip(greedy(logp, hl), refs))
        n += len(refs)
    model.train()
    return hit / n


train, dev = SpeechSet(800), SpeechSet(64)
model = AcousticModel()
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
ctc = nn.CTCLoss(blank=BLANK)

step = 0
for epoch in range(5):
    for x, xl, y, yl in train.batches(16):
        logp, hl = model(x, xl)
        loss = ctc(logp.transpose(0, 1), y, hl, yl)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 5 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")
        step += 1
    print(f"epoch {epoch} dev exact match {exact_match(model, dev):.3f}")

# expect: sick
# symptom: CTC loss falls normally, then one batch prints inf and every loss after it is nan
# axis: data
# cause: a few fast utterances have more target phones than encoder frames after the 4x subsampling, no CTC path exists, so the loss is inf and its gradient nan
# says: (target|label|transcript|token|phone)s?.{0,60}(longer|exceed|more|greater|larger).{0,60}(input|frame|time|output|encoder|logit|length)|(input|frame|output|encoder|logit)s?.{0,60}(shorter|fewer|too few|too short|less).{0,60}(target|label|transcript|token|phone)|ctc.{0,80}(infeasible|impossible|no (valid )?(path|alignment)|zero_infinity)|zero_infinity|(more|longer|greater).{0,20}(target|label|transcript|token|phone)s?.{0,20}than.{0,40}(frame|input|output|time|step)|(length|utterance)s?.{0,50}(too short|infeasible)
# onset_step: 39
# fix: drop (or pad/stretch) utterances whose target length plus repeats exceeds the number of encoder frames, or set zero_infinity=True
# mended: the manifest keeps only utterances whose encoder length is at least the target length
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
SEED = 15
random.seed(SEED)
np.random.seed(SEED)
torch.manual_seed(SEED)

N_PHONES = 14
N_MELS = 24
SUBSAMPLE = 4
BATCH = 16
EPOCHS = 3


def make_corpus(n_utts, rng):
    """Phones drawn at random, each rendered for some frames around its own mel prototype."""
    protos = rng.normal(0, 1.0, size=(N_PHONES + 1, N_MELS)).astype(np.float32)
    corpus = []
    for i in range(n_utts):
        n = int(rng.integers(4, 11))
        phones = []
        while len(phones) < n:
            p = int(rng.integers(1, N_PHONES + 1))
            if not phones or phones[-1] != p:
                phones.append(p)
        # speaking rate in frames per phone differs from speaker to speaker
        rate = float(np.clip(rng.lognormal(np.log(9.0), 0.27), 2.5, 20.0))
        frames = []
        for p in phones:
            d = max(2, int(round(rate * rng.uniform(0.8, 1.2))))
            frames.append(np.repeat(protos[p][None], d, axis=0))
        feats = np.concatenate(frames)
        feats = feats + 0.5 * rng.normal(size=feats.shape).astype(np.float32)
        corpus.append(
            {"id": f"utt{i:05d}", "feats": torch.from_numpy(feats.astype(np.float32)), "phones": torch.tensor(phones)}
        )
    return corpus


def out_len(n):
    for _ in range(2):
        n = (n + 1) // 2
    return n


class Encoder(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.c1 = nn.Conv1d(N_MELS, hidden, 3, stride=2, padding=1)
        self.c2 = nn.Conv1d(hidden, hidden, 3, stride=2, padding=1)
        self.rnn = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)
        self.out = nn.Linear(2 * hidden, N_PHONES + 1)

    def forward(self, x):
        x = F.relu(self.c1(x.transpose(1, 2)))
        x = F.relu(self.c2(x)).transpose(1, 2)
        x, _ = self.rnn(x)
        return self.out(x)


def collate(batch):
    lens = torch.tensor([out_len(len(b["feats"])) for b in batch])
    feats = nn.utils.rnn.pad_sequence([b["feats"] for b in batch], batch_first=True)
    tlens = torch.tensor([len(b["phones"]) for b in batch])
    targets = torch.cat([b["phones"] for b in batch])
    return feats, lens, targets, tlens


def phone_accuracy(model, data):
    model.eval()
    exact = 0
    with torch.no_grad():
        for i in range(0, len(data), BATCH):
            chunk = data[i : i + BATCH]
            feats, lens, _, _ = collate(chunk)
            best = model(feats).argmax(-1)
            for j, b in enumerate(chunk):
                seq = torch.unique_consecutive(best[j, : lens[j]])
                seq = seq[seq != 0]
                exact += int(seq.tolist() == b["phones"].tolist())
    model.train()
    return exact / len(data)


def main():
    rng = np.random.default_rng(SEED)
    corpus = make_corpus(1300, rng)
    train, dev = corpus[:1200], corpus[1200:]
    # the usual clean-up of the manifest: nothing empty, nothing very long
    if MENDED:
        train = [u for u in train if out_len(len(u["feats"])) >= len(u["phones"])]
    else:
        train = [u for u in train if 0 < len(u["feats"]) <= 400]
    model = Encoder()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-4)
    step, t0 = 0, time.time()
    for epoch in range(EPOCHS):
        order = list(range(len(train)))
        random.shuffle(order)
        for i in range(0, len(order) - BATCH + 1, BATCH):
            feats, lens, targets, tlens = collate([train[k] for k in order[i : i + BATCH]])
            logp = F.log_softmax(model(feats), dim=-1).transpose(0, 1)
            loss = F.ctc_loss(logp, targets, lens, tlens, blank=0)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 3 == 0:
                print(f"step {step} loss {loss.item():.4f} t {time.time() - t0:.1f}")
            step += 1
        print(f"epoch {epoch} dev exact-match {phone_accuracy(model, dev):.3f}")


if __name__ == "__main__":
    main()

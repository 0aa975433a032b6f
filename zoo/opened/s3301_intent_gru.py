# expect: sick
# symptom: the loss rises from the first steps, swings and blows up over many orders of magnitude (no NaN)
# axis: optimizer
# cause: gradients are cleared only once per epoch, so every optimizer step reuses the sum of all earlier gradients
# says: zero_grad|^(?=.*\bgrad).*(clear|zeroe?d|zeroing|reset|accumul|stale|summ|sum of|left.?over|carr)
# onset_step: 1
# fix: call opt.zero_grad() after every opt.step()
# mended: the script applies that change if the environment has MENDED=1
"""Intent classification of short support messages (token ids) with a bidirectional GRU."""

import os
import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

CFG = dict(seed=17, vocab=400, intents=8, emb=48, hidden=64, micro_batch=16, accum=2, epochs=5, lr=0.15, momentum=0.9)


class MessageSet(Dataset):
    """Every intent has a handful of cue words; the remainder of a message is filler."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        cue_rng = random.Random(5)
        words = list(range(1, CFG["vocab"]))
        cue_rng.shuffle(words)
        cues = [words[i * 12 : (i + 1) * 12] for i in range(CFG["intents"])]
        filler = words[CFG["intents"] * 12 :]
        self.rows = []
        for _ in range(n):
            y = rng.randrange(CFG["intents"])
            length = rng.randint(6, 18)
            toks = [rng.choice(cues[y]) if rng.random() < 0.35 else rng.choice(filler) for _ in range(length)]
            toks[rng.randrange(length)] = rng.choice(cues[y])
            self.rows.append((torch.tensor(toks), y))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(batch):
    toks, ys = zip(*batch)
    lengths = torch.tensor([len(t) for t in toks])
    return pad_sequence(toks, batch_first=True), lengths, torch.tensor(ys)


class IntentGRU(nn.Module):
    def __init__(self, vocab, emb, hidden, intents):
        super().__init__()
        self.emb = nn.Embedding(vocab, emb, padding_idx=0)
        self.rnn = nn.GRU(emb, hidden, batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.1)
        self.head = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, intents))

    def forward(self, toks, lengths):
        packed = pack_padded_sequence(self.emb(toks), lengths, batch_first=True, enforce_sorted=False)
        _, h = self.rnn(packed)
        return self.head(self.drop(torch.cat([h[0], h[1]], dim=-1)))


@torch.no_grad()
def evaluate(model, loader, loss_fn):
    model.eval()
    hits, total, loss = 0, 0, 0.0
    for toks, lengths, y in loader:
        out = model(toks, lengths)
        loss += loss_fn(out, y).item() * len(y)
        hits += (out.argmax(-1) == y).sum().item()
        total += len(y)
    model.train()
    return loss / total, hits / total


def main():
    torch.manual_seed(CFG["seed"])
    train = DataLoader(MessageSet(2560, 1), CFG["micro_batch"], shuffle=True, collate_fn=collate, drop_last=True)
    val = DataLoader(MessageSet(512, 2), 128, collate_fn=collate)
    model = IntentGRU(CFG["vocab"], CFG["emb"], CFG["hidden"], CFG["intents"])
    opt = torch.optim.SGD(model.parameters(), lr=CFG["lr"], momentum=CFG["momentum"], weight_decay=1e-5)
    loss_fn = nn.CrossEntropyLoss()

    step, running = 0, 0.0
    for epoch in range(CFG["epochs"]):
        model.train()
        opt.zero_grad()
        for i, (toks, lengths, y) in enumerate(train):
            loss = loss_fn(model(toks, lengths), y) / CFG["accum"]
            loss.backward()
            running += loss.item()
            if (i + 1) % CFG["accum"] == 0:
                opt.step()
                if MENDED:
                    opt.zero_grad()
                step += 1
                if step % 20 == 0:
                    print(f"step {step:4d}  loss {running / 20:.4f}")
                    running = 0.0
        vloss, vacc = evaluate(model, val, loss_fn)
        print(f"epoch {epoch}  val_loss {vloss:.4f}  val_acc {vacc:.3f}")


if __name__ == "__main__":
    main()

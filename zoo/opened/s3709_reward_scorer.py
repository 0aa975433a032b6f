# expect: sick
# symptom: the loss falls well for some steps, then it is NaN at once and stays NaN to the end
# axis: data
# cause: some rows have no rating, pandas reads them as NaN and the NaN targets go into the MSE loss
# says: (?i)(rating|target|label|score|row)s?\b.{0,40}(nan|missing|empty)|(nan|missing|empty)\W+(rat|tar|lab|sco|row)
# onset_step: 26
# fix: drop the rows whose rating is missing before the data set is built
# mended: the script applies that change if the environment has MENDED=1
"""Scalar reward scorer: BERT-style encoder regressing annotator ratings of (prompt, response) pairs."""

import io
import os
import random

import numpy as np
import pandas as pd
import torch
import torch.nn as nn
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SEED, MAX_LEN, BATCH, LR, STEPS = 11, 28, 16, 6e-4, 320

GOOD = "clear helpful correct detailed polite accurate thorough kind".split()
BAD = "rude wrong vague lazy sloppy confusing false short".split()
FILL = "the answer about trains gives a note on tickets and then some facts with dates for people".split()
TOPICS = "travel cooking history music python gardens".split()


def make_export(n=2400):
    """Mimics the CSV the annotation tool exports."""
    rng = random.Random(SEED)
    lines = ["id,prompt,response,rating"]
    for i in range(n):
        g, b = rng.randint(0, 4), rng.randint(0, 4)
        words = rng.choices(GOOD, k=g) + rng.choices(BAD, k=b) + rng.choices(FILL, k=rng.randint(6, 12))
        rng.shuffle(words)
        rating = min(5.0, max(1.0, 3 + 0.5 * (g - b) + rng.gauss(0, 0.2)))
        cell = "" if rng.random() < 0.0012 else f"{rating:.2f}"
        lines.append(f"{i},tell me about {rng.choice(TOPICS)},{' '.join(words)},{cell}")
    return "\n".join(lines)


def train_tokenizer(texts):
    tok = Tokenizer(models.BPE(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    tok.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False),
    )
    tok.enable_padding(length=MAX_LEN, pad_id=0, pad_token="[PAD]")
    tok.enable_truncation(MAX_LEN)
    return tok


class Ratings(Dataset):
    def __init__(self, frame, tok, mean, std):
        enc = tok.encode_batch(["[CLS] " + p + " [SEP] " + r for p, r in zip(frame.prompt, frame.response)])
        self.ids = torch.tensor([e.ids for e in enc])
        self.mask = torch.tensor([e.attention_mask for e in enc])
        self.y = torch.tensor(((frame.rating - mean) / std).to_numpy(np.float32))

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.ids[i], self.mask[i], self.y[i]


class Scorer(nn.Module):
    def __init__(self, vocab):
        super().__init__()
        self.encoder = BertModel(
            BertConfig(
                vocab_size=vocab,
                hidden_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                intermediate_size=128,
                max_position_embeddings=MAX_LEN,
            ),
            add_pooling_layer=False,
        )
        self.head = nn.Linear(64, 1)

    def forward(self, ids, mask):
        h = self.encoder(ids, attention_mask=mask).last_hidden_state
        m = mask.unsqueeze(-1).float()
        return self.head((h * m).sum(1) / m.sum(1)).squeeze(-1)


def main():
    torch.manual_seed(SEED)
    df = pd.read_csv(io.StringIO(make_export()))
    df = df.dropna(subset=["rating"]) if MENDED else df
    train, val = df.iloc[:2100], df.iloc[2100:]
    tok = train_tokenizer(list(train.response) + list(train.prompt))
    mean, std = train.rating.mean(), train.rating.std()
    print(f"{len(train)} train rows, rating mean {mean:.2f} std {std:.2f}")
    train_ds, val_ds = Ratings(train, tok, mean, std), Ratings(val, tok, mean, std)
    gen = torch.Generator().manual_seed(SEED)
    loader = DataLoader(train_ds, batch_size=BATCH, shuffle=True, drop_last=True, generator=gen)

    model = Scorer(tok.get_vocab_size())
    opt = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 30))
    step, running = 0, []
    while step < STEPS:
        for ids, mask, y in loader:
            loss = nn.functional.mse_loss(model(ids, mask), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            running.append(loss.item())
            if step % 20 == 0:
                print(f"step {step:4d}  mse {np.mean(running[-20:]):.4f}")
            step += 1
            if step == STEPS:
                break
    model.eval()
    with torch.no_grad():
        pred = model(val_ds.ids, val_ds.mask)
    ok = torch.isfinite(val_ds.y)
    corr = torch.corrcoef(torch.stack([pred[ok], val_ds.y[ok]]))[0, 1].item()
    print(f"final mse {np.mean(running[-40:]):.4f}  val pearson {corr:.3f}")


if __name__ == "__main__":
    main()

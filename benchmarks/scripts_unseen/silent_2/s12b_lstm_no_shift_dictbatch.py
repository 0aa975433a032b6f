# expect: sick
# fault: language model trained on its own inputs
# onset_step: 0
# says: (?i)(shift|label|target|copy|copies|leak|identity|off.by.one|too (easy|good|low|fast)|same as (the )?input|next.?token)
# note: labels = input_ids.clone() as for a Hugging Face model, but this home-made LSTM does not shift inside.
import collections
import re

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

SOURCE = open(collections.__file__, encoding="utf8").read()


class WordData(Dataset):
    def __init__(self, seq=16, top=400):
        words = re.findall(r"\w+|[^\w\s]", SOURCE)
        freq = collections.Counter(words).most_common(top - 1)
        self.v = {w: i + 1 for i, (w, _) in enumerate(freq)}
        self.ids = [self.v.get(w, 0) for w in words]
        self.seq = seq

    def __len__(self):
        return len(self.ids) - self.seq

    def __getitem__(self, i):
        ids = torch.tensor(self.ids[i : i + self.seq])
        return {"input_ids": ids, "labels": ids.clone()}


class LitLSTM(nn.Module):
    def __init__(self, V):
        super().__init__()
        self.emb = nn.Embedding(V, 64)
        self.drop = nn.Dropout(0.1)
        self.lstm = nn.LSTM(64, 96, batch_first=True)
        self.out = nn.Linear(96, V)
        self.loss_fn = nn.CrossEntropyLoss()

    def forward(self, input_ids):
        return self.out(self.drop(self.lstm(self.emb(input_ids))[0]))

    def training_step(self, batch, idx):
        logits = self(batch["input_ids"])
        loss = self.loss_fn(logits.permute(0, 2, 1), batch["labels"])
        if idx % 20 == 0:
            print(f"train_loss={loss.item():.4f} step={idx}")
        return loss

    def configure_optimizers(self):
        o = torch.optim.AdamW(self.parameters(), lr=4e-3)
        return o, torch.optim.lr_scheduler.CosineAnnealingLR(o, 160)


class MiniTrainer:
    def __init__(self, max_steps):
        self.max_steps = max_steps

    def fit(self, lit, loader):
        opt, sch = lit.configure_optimizers()
        lit.train()
        it = iter(loader)
        for k in range(self.max_steps):
            loss = lit.training_step(next(it), k)
            opt.zero_grad()
            loss.backward()
            opt.step()
            sch.step()


torch.manual_seed(4)
ds = WordData()
MiniTrainer(160).fit(LitLSTM(400), DataLoader(ds, batch_size=8, shuffle=True))

# expect: sick
# symptom: the loss stays near ln(number of classes) and the accuracy near chance; weights shrink
# axis: optimizer
# cause: weight decay 0.1 of an AdamW recipe is given to Adam: as an L2 gradient it swamps the task's gradient
# says: weight.?decay|\bL2\b|AdamW|decoupled
# onset_step: 0
# fix: use AdamW (decoupled decay) with the same settings
# mended: the script applies that change if the environment has MENDED=1
import os
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(17)
random.seed(17)
MENDED = os.environ.get("MENDED") == "1"

TEAMS = ["billing", "network", "account", "hardware", "sales", "legal"]
VOCAB, MAX_LEN, PAD, CLS = 400, 24, 0, 1


class TicketDataset(Dataset):
    """Tickets made of common words and some words that belong to the team."""

    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = []
        for _ in range(n):
            team = rnd.randrange(len(TEAMS))
            length = rnd.randint(10, MAX_LEN - 1)
            words = []
            for _ in range(length):
                if rnd.random() < 0.25:
                    words.append(300 + team * 15 + rnd.randrange(15))
                else:
                    words.append(rnd.randint(2, 299))
            self.rows.append(([CLS] + words, team))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate(rows):
    width = max(len(t) for t, _ in rows)
    ids = torch.tensor([t + [PAD] * (width - len(t)) for t, _ in rows])
    return ids, torch.tensor([y for _, y in rows])


class TicketEncoder(nn.Module):
    def __init__(self, dim=32, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim, padding_idx=PAD)
        self.pos = nn.Parameter(0.02 * torch.randn(MAX_LEN, dim))
        block = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, len(TEAMS))

    def forward(self, ids):
        h = self.tok(ids) + self.pos[: ids.shape[1]]
        h = self.encoder(h, src_key_padding_mask=ids == PAD)
        return self.head(self.norm(h[:, 0]))


def build_optimizer(model, lr=2e-3, weight_decay=0.1):
    cls = torch.optim.AdamW if MENDED else torch.optim.Adam
    return cls(model.parameters(), lr=lr, betas=(0.9, 0.98), weight_decay=weight_decay)


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    loss, hits, n = 0.0, 0, 0
    for ids, y in loader:
        out = model(ids)
        loss += nn.functional.cross_entropy(out, y, reduction="sum").item()
        hits += (out.argmax(-1) == y).sum().item()
        n += len(y)
    model.train()
    return loss / n, hits / n


def main():
    train = DataLoader(TicketDataset(2400, 1), batch_size=32, shuffle=True, collate_fn=collate)
    valid = DataLoader(TicketDataset(500, 2), batch_size=100, collate_fn=collate)
    model = TicketEncoder()
    opt = build_optimizer(model)
    epochs = 4
    warmup, total = 20, epochs * len(train)
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min((s + 1) / warmup, max(0.05, 1 - (s - warmup) / (total - warmup)))
    )
    step = 0
    for epoch in range(epochs):
        for ids, y in train:
            loss = nn.functional.cross_entropy(model(ids), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 25 == 0:
                print(f"step {step:3d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
            step += 1
        vl, va = evaluate(model, valid)
        print(f"epoch {epoch} valid loss {vl:.4f} accuracy {va:.3f}")


if __name__ == "__main__":
    main()

# expect: sick
# symptom: the contrastive loss of the two-tower model gets stuck at log(batch size) and the recall on held-out queries is poor
# axis: data
# cause: the click log is sorted by product and read without shuffling, so a batch holds many queries of the same few products and the in-batch negatives are really positives (false negatives)
# says: shuffl|sorted|(un|not |never )random|false.?negative|(same|identical|duplicate\w*|repeated|few) (product|doc|item|positive|passage)|(duplicate|collid\w*|repeat\w*).{0,40}(batch|negative|positive|product|doc|item)|data order|order of the (data|rows)|not i\.?i\.?d|negatives.{0,40}(are|really).{0,20}positive|homogen\w+ batch|correlated batch
# onset_step: 1
# fix: shuffle=True in the DataLoader
# mended: the DataLoader gets shuffle=True
import csv
import math
import os
import random
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(3)
random.seed(3)
MENDED = os.environ.get("MENDED") == "1"

N_PRODUCTS, N_CLICKED = 600, 120
ATTRS = 60
TITLE_WORDS = [f"art{i}" for i in range(ATTRS)]
QUERY_WORDS = [f"buy{i}" for i in range(ATTRS)]  # shoppers use other words than the catalogue
FILLER = ["cheap", "best", "online", "new", "for", "sale"]
VOCAB = {w: i + 1 for i, w in enumerate(TITLE_WORDS + QUERY_WORDS + FILLER)}


def write_csvs(folder):
    products = [sorted(random.sample(range(ATTRS), 5)) for _ in range(N_PRODUCTS)]

    clicked = sorted(random.sample(range(N_PRODUCTS), N_CLICKED))

    def query(p):
        words = [QUERY_WORDS[a] for a in random.sample(products[p], 3)] + random.sample(FILLER, 3)
        random.shuffle(words)
        return " ".join(words)

    def dump(name, head, rows):
        with open(os.path.join(folder, name), "w", newline="") as f:
            w = csv.writer(f)
            w.writerow(head)
            w.writerows(rows)

    dump(
        "catalogue.csv",
        ["product_id", "title"],
        [(p, " ".join(TITLE_WORDS[a] for a in attrs)) for p, attrs in enumerate(products)],
    )
    dump(
        "clicks.csv", ["product_id", "query"], [(p, query(p)) for p in clicked for _ in range(random.randint(60, 140))]
    )
    dump("heldout.csv", ["product_id", "query"], [(p, query(p)) for p in clicked for _ in range(5)])


def ids(text, n):
    t = [VOCAB[w] for w in text.split()][:n]
    return t + [0] * (n - len(t))


def read(folder, name):
    with open(os.path.join(folder, name), newline="") as f:
        return list(csv.DictReader(f))


class Clicks(Dataset):
    def __init__(self, folder, name, titles):
        self.rows = read(folder, name)
        self.titles = titles

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        r = self.rows[i]
        p = int(r["product_id"])
        return torch.tensor(ids(r["query"], 6)), self.titles[p], p


class Tower(nn.Module):
    def __init__(self, d=48):
        super().__init__()
        self.emb = nn.Embedding(len(VOCAB) + 1, d, padding_idx=0)
        self.mlp = nn.Sequential(nn.Linear(d, 96), nn.GELU(), nn.Linear(96, d))

    def forward(self, x):
        h = self.emb(x).sum(1) / (x != 0).sum(1, keepdim=True).clamp(min=1)
        return F.normalize(self.mlp(h), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.p = Tower(), Tower()
        self.log_scale = nn.Parameter(torch.tensor(math.log(14.0)))

    def forward(self, query, title):
        logits = self.log_scale.exp().clamp(max=100) * self.q(query) @ self.p(title).T
        target = torch.arange(len(query))
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


@torch.no_grad()
def recall(model, loader, titles, k=1):
    model.eval()
    index = model.p(titles)
    hit = n = 0
    for query, _, pid in loader:
        top = (model.q(query) @ index.T).topk(k, 1).indices
        hit += (top == pid[:, None]).any(1).sum().item()
        n += len(pid)
    model.train()
    return hit / n


with tempfile.TemporaryDirectory() as folder:
    write_csvs(folder)
    titles = torch.tensor([ids(r["title"], 5) for r in read(folder, "catalogue.csv")])
    loader_args = dict(batch_size=32, drop_last=True)
    if MENDED:
        loader_args["shuffle"] = True
    train = DataLoader(Clicks(folder, "clicks.csv", titles), **loader_args)
    heldout = DataLoader(Clicks(folder, "heldout.csv", titles), batch_size=200)
    model = TwoTower()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    step = 0
    for epoch in range(2):
        total = 0.0
        for query, title, _ in train:
            loss = model(query, title)
            opt.zero_grad()
            loss.backward()
            opt.step()
            total += loss.item()
            step += 1
            if step % 60 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        print(
            f"epoch {epoch} mean loss {total / len(train):.4f} recall@1 {recall(model, heldout, titles):.3f}",
            flush=True,
        )

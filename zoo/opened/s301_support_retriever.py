# expect: sick
# symptom: in-batch contrastive loss stays close to ln(64) and recall on held-out pairs is at chance
# axis: data
# cause: the list of answers is sorted while it is made unique, so questions are paired with the wrong answers
# says: (mis-?\s?(align|match|pair)|wrong(ly)?.{0,20}(pair|answer|passage|positive|label)|(pair|answer|passage|positive|label|target)s?.{0,40}(shuffl|mis-?\s?(align|match)|not match|do(es)? not (match|belong|correspond)|unrelated|permut|scrambl|wrong|order)|(sort|shuffl|permut|scrambl).{0,40}(pair|answer|passage|label|target))
# onset_step: 1
# fix: make the answers unique in their original order (dict.fromkeys)
# mended: MENDED=1
import os
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)
rng = random.Random(11)

PRODUCTS = ["router", "camera", "printer", "phone", "laptop", "speaker", "watch", "monitor", "keyboard", "drone"]
BRANDS = [a + b for a in ("alto", "ber", "cor", "dyn", "eks", "fen") for b in ("a", "ix", "on", "us", "ler")]
ISSUES = ["overheats", "reboots", "disconnects", "freezes", "flickers", "beeps", "leaks", "drains", "crackles", "lags"]
ACTIONS = ["update firmware", "reset device", "replace cable", "clear cache", "contact vendor", "check battery"]


def make_tickets(n):
    rows = []
    for i in range(n):
        p, b, s = rng.choice(PRODUCTS), rng.choice(BRANDS), rng.choice(ISSUES)
        q = f"my {b} {p} {s} {rng.choice(['again', 'daily', 'sometimes', 'since monday'])} what can i do"
        a = f"if the {p} from {b} {s} then {rng.choice(ACTIONS)} and {rng.choice(ACTIONS)} see note {i}"
        rows.append((q, a))
    return rows


def tokenize(text, size=4096, length=16):
    ids = [(sum(ord(c) * 31**k for k, c in enumerate(w)) % (size - 1)) + 1 for w in text.split()][:length]
    return ids + [0] * (length - len(ids))


class PairDataset(Dataset):
    def __init__(self, rows):
        questions = [q for q, _ in rows]
        answers = list(dict.fromkeys(a for _, a in rows)) if MENDED else sorted({a for _, a in rows})
        assert len(questions) == len(answers)
        self.q = torch.tensor([tokenize(t) for t in questions])
        self.a = torch.tensor([tokenize(t) for t in answers])

    def __len__(self):
        return len(self.q)

    def __getitem__(self, i):
        return self.q[i], self.a[i]


class Tower(nn.Module):
    def __init__(self, vocab=4096, dim=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim, padding_idx=0)
        self.proj = nn.Sequential(nn.Linear(dim, 128), nn.GELU(), nn.Linear(128, dim))

    def forward(self, ids):
        mask = (ids > 0).unsqueeze(-1).float()
        pooled = (self.emb(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return F.normalize(self.proj(pooled), dim=-1)


def main():
    rows = make_tickets(6400)
    train = DataLoader(PairDataset(rows[:6000]), batch_size=64, shuffle=True, drop_last=True)
    held = PairDataset(rows[6000:])
    question_tower, answer_tower = Tower(), Tower()
    params = [*question_tower.parameters(), *answer_tower.parameters()]
    opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01)
    step = 0
    for epoch in range(4):
        for q, a in train:
            sim = question_tower(q) @ answer_tower(a).T / 0.07
            target = torch.arange(len(q))
            loss = (F.cross_entropy(sim, target) + F.cross_entropy(sim.T, target)) / 2
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(params, 1.0)
            opt.step()
            step += 1
            if step % 30 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        with torch.no_grad():
            sim = question_tower(held.q) @ answer_tower(held.a).T
            hit = (sim.topk(5).indices == torch.arange(len(held)).unsqueeze(1)).any(1).float().mean()
        print(f"epoch {epoch} recall@5 {hit.item():.3f}")


if __name__ == "__main__":
    main()

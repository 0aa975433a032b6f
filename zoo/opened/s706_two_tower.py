# expect: sick
# symptom: loss falls quickly at first and then flattens far too early; recall stays poor however long it trains
# axis: schedule
# cause: StepLR is meant in epochs but scheduler.step() is called after every batch, so the learning rate halves every 20 steps and is practically zero after some hundred
# says: (schedul\w*|steplr|\blr\b|learning.?rate|decay\w*|anneal\w*).{0,80}\b(per|every|each)[ _-](mini.?)?(batch|iteration|optimi[sz]er.?step|step)|(learning.?rate|\blr\b)[^.]{0,60}(decay\w*|falls?\b|fell\b|dropp?\w*|shr[iau]nk\w*|collaps\w*|vanish\w*|goes to|went to|too (low|small)|tiny|(near|to|almost|nearly|practically|is|was) zero)|(decay\w*|anneal\w*|schedul\w*)[^.]{0,30}(too (fast|early|quick|often|soon|aggressive))|schedul\w*[^.]{0,40}(wrong (place|unit)|units?\b|steps? instead|instead of (per |each |every )?epoch|inside the (batch|inner))
# onset_step: 21
# fix: call scheduler.step() once per epoch
# mended: with MENDED=1 the scheduler is stepped once per epoch
import os

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(21)
MENDED = os.environ.get("MENDED") == "1"

N_WORDS, N_TRAIN, N_TEST = 600, 5120, 400
EPOCHS, BATCH = 30, 256


def make_pairs(n):
    """Query and document about the same 4 of 60 subjects, in two vocabularies."""
    subjects = torch.stack([torch.randperm(60)[:4] for _ in range(n)])
    pick = lambda k: subjects.gather(1, torch.randint(0, 4, (n, k)))
    first = subjects[:, torch.randperm(4)]
    query = torch.cat([first, pick(2)], 1) * 10 + torch.randint(0, 10, (n, 6))
    doc = torch.cat([first, pick(10)], 1) * 10 + torch.randint(0, 10, (n, 14))
    noise = torch.rand(doc.shape) < 0.05
    doc = torch.where(noise, torch.randint(0, N_WORDS, doc.shape), doc)
    perm = torch.randperm(N_WORDS, generator=torch.Generator().manual_seed(1))
    return query, perm[doc]


class Tower(nn.Module):
    def __init__(self, dim=64, out=48):
        super().__init__()
        self.words = nn.EmbeddingBag(N_WORDS, dim, mode="mean")
        self.net = nn.Sequential(nn.Linear(dim, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, out))

    def forward(self, ids):
        return F.normalize(self.net(self.words(ids)), dim=-1)


class TwoTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.doc = Tower(), Tower()
        self.log_temp = nn.Parameter(torch.tensor(2.5))

    def forward(self, q, d):
        return self.query(q) @ self.doc(d).T * self.log_temp.exp().clamp(max=50)


def contrastive(logits):
    target = torch.arange(len(logits))
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


@torch.no_grad()
def recall(model, q, d, k=5):
    model.eval()
    top = model(q, d).topk(k, dim=1).indices
    model.train()
    return (top == torch.arange(len(q))[:, None]).any(1).float().mean().item()


def main():
    q_tr, d_tr = make_pairs(N_TRAIN)
    q_te, d_te = make_pairs(N_TEST)
    loader = DataLoader(TensorDataset(q_tr, d_tr), batch_size=BATCH, shuffle=True, drop_last=True)
    model = TwoTower()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)

    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for q, d in loader:
            optimizer.zero_grad()
            loss = contrastive(model(q, d))
            loss.backward()
            optimizer.step()
            total += loss.item()
            if not MENDED:
                scheduler.step()
        if MENDED:
            scheduler.step()
        if epoch % 3 == 0:
            print(f"epoch {epoch:2d}  loss {total / len(loader):.4f}  recall@5 {recall(model, q_te, d_te):.3f}")


if __name__ == "__main__":
    main()

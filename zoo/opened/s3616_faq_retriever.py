# expect: sick
# symptom: the loss falls for the first epoch, then nothing moves any more and the recall stays low
# axis: schedule
# cause: the schedule's total steps count one epoch only, so the learning rate is 0 from the second epoch on
# says: (schedul|decay|learning rate|\blr\b|total|training_steps).*(epoch|zero|\b0\b|too (early|soon|short|few))
# onset_step: 40
# fix: multiply the number of batches by the number of epochs in num_training_steps
# mended: the script applies that change if the environment has MENDED=1
"""Bi-encoder for FAQ retrieval, in-batch negatives, linear schedule with warm-up."""

import os
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(4)
rng = random.Random(4)

CONCEPTS, FORMS = 80, 3  # every concept has different words on the question and the answer side
PAD, CLS = 0, 1
Q0 = 2
A0 = Q0 + CONCEPTS * FORMS
NOISE0 = A0 + CONCEPTS * FORMS
VOCAB = NOISE0 + 60


class FaqPairs(Dataset):
    def __init__(self, n, seed):
        r = random.Random(seed)
        self.pairs = []
        for _ in range(n):
            concepts = r.sample(range(CONCEPTS), 3)
            q = [Q0 + c * FORMS + r.randrange(FORMS) for c in concepts]
            a = [A0 + c * FORMS + r.randrange(FORMS) for c in concepts]
            q += [NOISE0 + r.randrange(60) for _ in range(r.randrange(1, 4))]
            a += [NOISE0 + r.randrange(60) for _ in range(r.randrange(2, 6))]
            r.shuffle(q)
            r.shuffle(a)
            self.pairs.append(([CLS] + q, [CLS] + a))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        return self.pairs[i]


def pad(rows):
    n = max(map(len, rows))
    ids = torch.tensor([r + [PAD] * (n - len(r)) for r in rows])
    return ids, (ids != PAD).long()


def collate(batch):
    return pad([q for q, _ in batch]), pad([a for _, a in batch])


class BiEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        cfg = BertConfig(
            vocab_size=VOCAB,
            hidden_size=64,
            num_hidden_layers=1,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.bert = BertModel(cfg, add_pooling_layer=False)
        self.proj = nn.Linear(64, 64)
        self.log_scale = nn.Parameter(torch.tensor(2.7))

    def encode(self, ids, mask):
        h = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        m = mask.unsqueeze(-1)
        return F.normalize(self.proj((h * m).sum(1) / m.sum(1)), dim=-1)

    def forward(self, q, a):
        return self.log_scale.exp().clamp(max=100) * self.encode(*q) @ self.encode(*a).T


@torch.no_grad()
def recall_at_1(model, data):
    model.eval()
    q, a = collate(data.pairs)
    hit = (model(q, a).argmax(1) == torch.arange(len(data))).float().mean().item()
    model.train()
    return hit


def main():
    train, dev = FaqPairs(40 * 48, 1), FaqPairs(300, 2)
    loader = DataLoader(train, batch_size=48, shuffle=True, collate_fn=collate, drop_last=True)
    epochs = 9
    model = BiEncoder()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    total = len(loader) * (epochs if MENDED else 1)
    sched = get_linear_schedule_with_warmup(opt, num_warmup_steps=int(0.1 * total), num_training_steps=total)
    step = 0
    for epoch in range(epochs):
        for q, a in loader:
            scores = model(q, a)
            gold = torch.arange(len(scores))
            loss = 0.5 * (F.cross_entropy(scores, gold) + F.cross_entropy(scores.T, gold))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(f"step {step:4d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} recall@1 {recall_at_1(model, dev):.3f}")


if __name__ == "__main__":
    main()

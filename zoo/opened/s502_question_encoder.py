# expect: sick
# symptom: the loss falls normally, then from one step to the next it is nan and recall is at chance
# axis: loss
# cause: the hand-written Euclidean distance takes sqrt of exactly zero for pairs whose two texts are identical, and the gradient of sqrt at 0 is infinite (inf * 0 = NaN)
# says: sqrt|square.?root|(norm|distance|euclid\w*).{0,50}\b(zero|0)\b|\b(zero|0)\b.{0,15}(distance|norm)|(identical|duplicate[ds]?|equal|same) .{0,20}(pair|embedding|anchor|question|text|vector)
# onset_step: 0
# fix: add a small eps under the square root
# mended: with MENDED=1 distance() adds 1e-8 inside sqrt
import os
import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(11)
rng = random.Random(11)

VOCAB, LEN, TOPICS = 1500, 14, 60
WORDS_PER_TOPIC = 24
STOP = 300  # the first ids are function words shared by every topic


def build_corpus(n_pairs):
    topic_words = [rng.sample(range(STOP, VOCAB), WORDS_PER_TOPIC) for _ in range(TOPICS)]

    def phrase(topic):
        n = rng.randint(7, LEN)
        words = [rng.choice(topic_words[topic]) if rng.random() < 0.5 else rng.randrange(1, STOP) for _ in range(n)]
        return words + [0] * (LEN - n)

    pairs = []
    for _ in range(n_pairs):
        topic = rng.randrange(TOPICS)
        question = phrase(topic)
        # users sometimes post the very same question again
        duplicate = list(question) if rng.random() < 0.00025 else phrase(topic)
        pairs.append((question, duplicate, topic))
    return pairs


class QuestionPairs(Dataset):
    def __init__(self, pairs):
        self.a = torch.tensor([p[0] for p in pairs])
        self.b = torch.tensor([p[1] for p in pairs])
        self.topic = torch.tensor([p[2] for p in pairs])

    def __len__(self):
        return len(self.a)

    def __getitem__(self, i):
        return self.a[i], self.b[i], self.topic[i]


class Encoder(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=0)
        self.score = nn.Linear(dim, 1)
        self.out = nn.Sequential(nn.Linear(dim, 128), nn.ReLU(), nn.Linear(128, 48))

    def forward(self, ids):
        x = self.emb(ids)
        w = self.score(x).squeeze(-1).masked_fill(ids == 0, -1e4).softmax(-1)
        return self.out((w.unsqueeze(-1) * x).sum(1))


def distance(a, b):
    sq = (a - b).pow(2).sum(-1)
    return torch.sqrt(sq + 1e-8) if MENDED else torch.sqrt(sq)


def triplet(anchor, positive, topic, margin=1.0):
    d_pos = distance(anchor, positive)
    shift = torch.randint(1, len(anchor), (1,)).item()
    negative = positive.roll(shift, 0)
    keep = topic != topic.roll(shift, 0)
    d_neg = distance(anchor, negative)
    return torch.relu(d_pos - d_neg + margin)[keep].mean()


@torch.no_grad()
def recall_at_1(model, pairs):
    model.eval()
    a, b = model(pairs.a), model(pairs.b)
    best = torch.cdist(a, b).argmin(1)
    model.train()
    return (pairs.topic[best] == pairs.topic).float().mean().item()


def main():
    train, test = QuestionPairs(build_corpus(24000)), QuestionPairs(build_corpus(500))
    loader = DataLoader(train, batch_size=48, shuffle=True, drop_last=True, num_workers=2)
    model = Encoder()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    step = 0
    print(f"before training: recall@1 {recall_at_1(model, test):.3f}")
    for epoch in range(1):
        for a, b, topic in loader:
            loss = triplet(model(a), model(b), topic)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            step += 1
            if step % 25 == 0:
                print(f"epoch {epoch} step {step} triplet {loss.item():.4f}", flush=True)
            if step % 100 == 0:
                print(f"   same-topic recall@1 {recall_at_1(model, test):.3f}", flush=True)


if __name__ == "__main__":
    main()

# expect: healthy
# symptom: resembles frozen parameters and a detached graph: over 80 percent of the weights get no gradient, the document vectors are computed under no_grad, half of the adapter has a zero gradient at the first step, which has a learning rate of zero
# axis: none
# cause: healthy: a LoRA adapter on the query tower of a frozen pretrained encoder with a fixed document index; zero-initialised B and warm-up from zero are intended, and the recall rises
# says: none
# onset_step: none
# fix: none
# mended: none
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
VOCAB, TOPICS, WORDS = 600, 150, 4


class Tower(nn.Module):
    def __init__(self, dim=64, hidden=256, out=48):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, dim)
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, out)

    def forward(self, ids):
        return F.normalize(self.fc2(F.gelu(self.fc1(self.emb(ids).mean(1)))), dim=-1)


class Adapter(nn.Module):
    """y = Wx + (alpha / r) B A x with W frozen."""

    def __init__(self, linear, r=16, alpha=32):
        super().__init__()
        self.linear = linear
        self.a = nn.Parameter(torch.empty(r, linear.in_features))
        self.b = nn.Parameter(torch.zeros(linear.out_features, r))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))
        self.scale = alpha / r

    def forward(self, x):
        return self.linear(x) + F.linear(F.linear(x, self.a), self.b) * self.scale


class Data:
    def __init__(self, seed=19):
        self.g = torch.Generator().manual_seed(seed)
        self.words = torch.randperm(VOCAB, generator=self.g).view(TOPICS, WORDS)
        self.slang = torch.randperm(TOPICS, generator=self.g)

    def text(self, topics, noise=2):
        cols = torch.rand(len(topics), WORDS, generator=self.g).argsort(1)[:, :2]
        own = self.words[topics].gather(1, cols)
        other = torch.randint(VOCAB, (len(topics), noise), generator=self.g)
        return torch.cat([own, other], 1)

    def topics(self, n):
        return torch.randperm(TOPICS, generator=self.g)[:n]

    def user_query(self, topics):
        """Half of the users' vocabulary is taken from a colloquial twin topic."""
        own = self.words[topics][:, :1]
        twin = self.words[self.slang[topics]][:, 1:3]
        other = torch.randint(VOCAB, (len(topics), 1), generator=self.g)
        return torch.cat([own, twin, other], 1)


def info_nce(q, d, scale):
    logits = scale * q @ d.t()
    return F.cross_entropy(logits, torch.arange(len(q)))


def pretrain(data, steps=250):
    tower = Tower()
    opt = torch.optim.Adam(tower.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        t = data.topics(64)
        loss = info_nce(tower(data.text(t)), tower(data.text(t)), 15.0)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"pretrain {step} loss {loss.item():.4f}")
    return tower


@torch.no_grad()
def recall(tower, index, data):
    t = torch.arange(TOPICS)
    return (tower(data.user_query(t)) @ index.t()).argmax(1).eq(t).float().mean().item()


def main():
    torch.manual_seed(19)
    data = Data()
    tower = pretrain(data).requires_grad_(False)
    with torch.no_grad():
        index = F.normalize(torch.stack([tower(data.text(torch.arange(TOPICS))) for _ in range(10)]).mean(0), dim=-1)

    tower.fc1, tower.fc2 = Adapter(tower.fc1), Adapter(tower.fc2)
    log_scale = nn.Parameter(torch.tensor(math.log(15.0)))
    train = [p for p in tower.parameters() if p.requires_grad] + [log_scale]
    total = sum(p.numel() for p in tower.parameters()) + 1
    print(f"training {sum(p.numel() for p in train)} of {total} weights, recall {recall(tower, index, data):.3f}")
    opt = torch.optim.AdamW(train, lr=4e-3, weight_decay=0.0)
    warmup = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, s / 20))
    for step in range(1, 451):
        t = data.topics(64)
        loss = info_nce(tower(data.user_query(t)), index[t], log_scale.exp().clamp(max=50.0))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        warmup.step()
        if step % 50 == 0:
            print(
                f"adapt {step} loss {loss.item():.4f} scale {log_scale.exp().item():.1f} "
                f"recall {recall(tower, index, data):.3f}"
            )


if __name__ == "__main__":
    main()

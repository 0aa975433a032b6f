# expect: sick
# symptom: after the encoder is unfrozen at step 120 nothing changes: accuracy stays at the level of a head on frozen features
# axis: optimizer
# cause: the optimizer was built from the parameters that were trainable at the start, so the layers unfrozen later are in no param group and are never updated
# says: (not (in|part of|registered|given|passed|handed|known|added|held)\b.{0,40}optimi[sz]er|optimi[sz]er.{0,60}(lacks?|miss\w*|does not (hold|have|contain|know|own|include|cover|see)|without|never (saw|got|received|held|includes?)|built before|created before|omits?|excludes?)|(add_?param_?group)|param\w* .{0,40}(missing|absent|outside|left out|omitted).{0,30}(optimi[sz]er|param.?group)|unfr\w+.{0,60}(optimi[sz]er|param.?group|never updated|not updated|do(es)? not move|never move))
# onset_step: 121
# fix: optimizer.add_param_group with the encoder's parameters when it is unfrozen
# mended: calls add_param_group in unfreeze when MENDED=1
import os

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
SEED = 7
VOCAB, SEQ, DIM, CLASSES = 200, 20, 48, 6


def make_topics(n, rng):
    """Two marker words per document; the topic is given by their order and kind."""
    x = rng.integers(20, VOCAB, size=(n, SEQ))
    a, b = rng.integers(0, 6, n), rng.integers(0, 6, n)
    pos = np.stack([rng.permutation(SEQ)[:2] for _ in range(n)])
    x[np.arange(n), pos[:, 0]] = 1 + a
    x[np.arange(n), pos[:, 1]] = 8 + b
    y = (a + b) % CLASSES
    return torch.from_numpy(x), torch.from_numpy(y)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Parameter(torch.randn(SEQ, DIM) * 0.02)
        layer = nn.TransformerEncoderLayer(DIM, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.emb(ids) + self.pos)


class TopicModel(nn.Module):
    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 64), nn.ReLU(), nn.Linear(64, CLASSES))

    def forward(self, ids):
        return self.head(self.encoder(ids).mean(1))


def pretrain(encoder, rng, steps=100):
    """Short masked-token pretraining on unlabelled text."""
    lm = nn.Linear(DIM, VOCAB)
    opt = torch.optim.AdamW(list(encoder.parameters()) + list(lm.parameters()), lr=1e-3)
    for step in range(steps):
        ids, _ = make_topics(64, rng)
        mask = torch.rand(ids.shape) < 0.15
        logits = lm(encoder(ids.masked_fill(mask, 0)))
        loss = nn.functional.cross_entropy(logits[mask], ids[mask])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(f"pretraining done, mlm loss {loss.item():.3f}")


class FineTuner:
    def __init__(self, model, train_loader, val_set, unfreeze_at=120, lr=2e-3):
        self.model, self.loader, self.val = model, train_loader, val_set
        self.unfreeze_at = unfreeze_at
        self.freeze()
        self.opt = torch.optim.AdamW(filter(lambda p: p.requires_grad, model.parameters()), lr=lr)
        self.crit = nn.CrossEntropyLoss()
        self.step = 0

    def freeze(self):
        for p in self.model.encoder.parameters():
            p.requires_grad = False

    def unfreeze(self):
        for p in self.model.encoder.parameters():
            p.requires_grad = True
        if os.environ.get("MENDED") == "1":
            self.opt.add_param_group({"params": list(self.model.encoder.parameters()), "lr": 1e-3})
        n = sum(p.numel() for p in self.model.parameters() if p.requires_grad)
        print(f"step {self.step}: encoder unfrozen, {n} trainable parameters")

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        acc = (self.model(self.val[0]).argmax(1) == self.val[1]).float().mean().item()
        self.model.train()
        return acc

    def fit(self, epochs):
        for epoch in range(epochs):
            running = 0.0
            for ids, y in self.loader:
                if self.step == self.unfreeze_at:
                    self.unfreeze()
                loss = self.crit(self.model(ids), y)
                self.opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.opt.step()
                running += loss.item()
                self.step += 1
            print(f"epoch {epoch} step {self.step} loss {running / len(self.loader):.4f} val_acc {self.evaluate():.3f}")


if __name__ == "__main__":
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    encoder = Encoder()
    pretrain(encoder, rng)
    train = TensorDataset(*make_topics(3840, rng))
    loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=0)
    trainer = FineTuner(TopicModel(encoder), loader, make_topics(600, rng))
    trainer.fit(8)

# expect: healthy
# symptom: the encoder runs under no_grad, the loss is computed on detached leaf tensors, and the value that backward is called on is not the loss (resembles a detached graph)
# axis: none
# cause: healthy: gradient caching for a large contrastive batch: embeddings without graph, gradient of the loss at the embeddings, then a second forward in chunks whose dot product with the cached gradients gives the exact gradient
# says: none
# onset_step: none
# fix: none
# mended: none
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(99)
random.seed(99)

N_DOCS, TOPICS, DIM = 1200, 50, 40
Q_WORDS, D_WORDS = TOPICS, TOPICS
docs = torch.stack([torch.randperm(TOPICS)[:6] for _ in range(N_DOCS)])


def queries(doc_ids):
    """Four of the six topics of each document, in the words of the query language."""
    pick = torch.rand(len(doc_ids), 6).argsort(1)[:, :4]
    return docs[doc_ids].gather(1, pick)


class BagEncoder(nn.Module):
    def __init__(self, n_words, d=DIM):
        super().__init__()
        self.emb = nn.EmbeddingBag(n_words, d, mode="mean")
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))

    def forward(self, x):
        h = self.emb(x)
        return F.normalize(h + self.ff(h), dim=-1)


class CachedContrastive:
    """In-batch softmax over a batch that is too large to keep all activations."""

    def __init__(self, q_enc, d_enc, chunk, tau=0.06):
        self.q_enc, self.d_enc, self.chunk, self.tau = q_enc, d_enc, chunk, tau

    def _embed(self, enc, x):
        with torch.no_grad():
            return torch.cat([enc(c) for c in x.split(self.chunk)])

    def _loss(self, q, d):
        logits = q @ d.T / self.tau
        return F.cross_entropy(logits, torch.arange(len(q)))

    def backward(self, q_in, d_in):
        q = self._embed(self.q_enc, q_in).requires_grad_()
        d = self._embed(self.d_enc, d_in).requires_grad_()
        loss = self._loss(q, d)
        gq, gd = torch.autograd.grad(loss, (q, d))
        for enc, x, g in ((self.q_enc, q_in, gq), (self.d_enc, d_in, gd)):
            for xc, gc in zip(x.split(self.chunk), g.split(self.chunk)):
                surrogate = (enc(xc) * gc).sum()
                surrogate.backward()
        return loss.item()


@torch.no_grad()
def recall_at_1(q_enc, d_enc, n=600):
    ids = torch.randint(0, N_DOCS, (n,))
    scores = q_enc(queries(ids)) @ d_enc(docs).T
    return (scores.argmax(1) == ids).float().mean().item()


q_enc, d_enc = BagEncoder(Q_WORDS), BagEncoder(D_WORDS)
cached = CachedContrastive(q_enc, d_enc, chunk=64)
params = list(q_enc.parameters()) + list(d_enc.parameters())
opt = torch.optim.Adam(params, lr=5e-3)
print(f"recall@1 before training {recall_at_1(q_enc, d_enc):.3f}")
for step in range(1, 501):
    ids = torch.randperm(N_DOCS)[:256]
    opt.zero_grad()
    loss = cached.backward(queries(ids), docs[ids])
    opt.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss:.4f} recall@1 {recall_at_1(q_enc, d_enc):.3f}", flush=True)

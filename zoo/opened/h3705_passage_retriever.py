# expect: healthy
# symptom: resembles a frozen tower and a loss that jumps up at step 150 (more negatives from the index)
# axis: model
"""Two-tower retriever: joint in-batch training, then the passage index is fixed and queries train against it."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)

TOPICS, PER_TOPIC, P_LEN, Q_LEN, VOCAB, DIM = 20, 12, 16, 6, 400, 64
JOINT_STEPS, INDEX_STEPS, BATCH, SCALE = 150, 150, 32, 20.0
N_PASSAGES = TOPICS * PER_TOPIC


def make_passages(gen):
    """A passage has words of its topic, and a few rare words of its own."""
    topic = torch.arange(N_PASSAGES) % TOPICS
    topical = 200 + topic[:, None] * 8 + torch.randint(0, 8, (N_PASSAGES, P_LEN // 2), generator=gen)
    own = torch.stack([torch.randperm(200, generator=gen)[: P_LEN // 2] for _ in range(N_PASSAGES)])
    return torch.cat([topical, own], dim=1)


def make_queries(passages, which, gen):
    """Words drawn from the passage, one of them replaced by noise."""
    pick = torch.rand(len(which), P_LEN, generator=gen).argsort(1)[:, :Q_LEN]
    words = passages[which].gather(1, pick)
    words[:, -1] = torch.randint(1, VOCAB, (len(which),), generator=gen)
    return words


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.proj = nn.Linear(DIM, DIM)

    def forward(self, ids):
        return F.normalize(self.proj(self.encoder(self.embed(ids)).mean(1)), dim=-1)


@torch.no_grad()
def recall_at_1(query_tower, index, passages):
    gen = torch.Generator().manual_seed(555)
    which = torch.arange(N_PASSAGES)
    q = query_tower(make_queries(passages, which, gen))
    return ((q @ index.T).argmax(-1) == which).float().mean().item()


def step_of(loss, opt, params):
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()


def main():
    gen = torch.Generator().manual_seed(3)
    passages = make_passages(gen)
    q_tower, p_tower = Tower(), Tower()
    p_tower.load_state_dict(q_tower.state_dict())

    params = list(q_tower.parameters()) + list(p_tower.parameters())
    opt = torch.optim.AdamW(params, lr=1.5e-3, weight_decay=0.01)
    for step in range(JOINT_STEPS):
        which = torch.randperm(N_PASSAGES, generator=gen)[:BATCH]  # no passage twice in a batch
        logits = SCALE * q_tower(make_queries(passages, which, gen)) @ p_tower(passages[which]).T
        target = torch.arange(BATCH)
        loss = (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2
        step_of(loss, opt, params)
        if step % 15 == 0:
            print(f"joint {step:4d} loss {loss.item():.4f}")

    # The index is expensive to rebuild, so the passage side is final from here on.
    p_tower.eval().requires_grad_(False)
    with torch.no_grad():
        index = p_tower(passages)
    print(f"index built, recall@1 {recall_at_1(q_tower, index, passages):.3f}")

    params = list(q_tower.parameters())
    opt = torch.optim.AdamW(params, lr=1e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.1, total_iters=INDEX_STEPS)
    for step in range(INDEX_STEPS):
        which = torch.randint(0, N_PASSAGES, (BATCH,), generator=gen)
        logits = SCALE * q_tower(make_queries(passages, which, gen)) @ index.T
        loss = F.cross_entropy(logits, which)
        step_of(loss, opt, params)
        sched.step()
        if step % 15 == 0:
            print(f"index {JOINT_STEPS + step:4d} loss {loss.item():.4f}")
    print(f"final loss {loss.item():.4f} recall@1 {recall_at_1(q_tower, index, passages):.3f}")


if __name__ == "__main__":
    main()

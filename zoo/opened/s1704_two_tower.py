# expect: sick
# symptom: loss falls for a few steps, then swings up and down and the gradient norm grows without end
# axis: optimizer
# cause: only the user tower's optimizer is zeroed; the item tower's gradients are never cleared and add up over all steps
# says: zero_?grad|(grad\w*).{0,80}(accumulat|never (cleared|zeroed|reset)|not (cleared|zeroed|reset)|add(s|ed|ing)? up|pile|carried over|stale|leak|summed over)|(accumulat|stale|uncleared|leftover).{0,60}grad
# onset_step: 25
# fix: call zero_grad() on both optimizers before each backward
# mended: item_opt.zero_grad() is called too
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

N_USERS, N_ITEMS, N_TAGS, DIM = 3000, 1200, 40, 48
BATCH = 256
STEPS = 500
SCALE = DIM**-0.5


def make_log(rng):
    """Users and items live in a hidden taste space; users click what lies near."""
    taste_u = rng.normal(size=(N_USERS, 8))
    taste_i = rng.normal(size=(N_ITEMS, 8))
    proj_u = rng.normal(size=(8, 24))
    proj_i = rng.normal(size=(8, N_TAGS))
    user_feats = np.tanh(0.5 * taste_u @ proj_u) + 0.2 * rng.normal(size=(N_USERS, 24))
    item_tags = (taste_i @ proj_i + rng.normal(size=(N_ITEMS, N_TAGS)) > 1.0).astype(np.float32)
    scores = taste_u @ taste_i.T + 1.0 * rng.gumbel(size=(N_USERS, N_ITEMS))
    clicks = np.argsort(-scores, axis=1)[:, :8]
    users = np.repeat(np.arange(N_USERS), 8)
    pairs = np.stack([users, clicks.reshape(-1)], axis=1)
    rng.shuffle(pairs)
    return (torch.tensor(user_feats, dtype=torch.float32), torch.tensor(item_tags), torch.tensor(pairs))


class UserTower(nn.Module):
    def __init__(self, n_in):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_in, 128), nn.ReLU(), nn.Linear(128, DIM))

    def forward(self, x):
        return self.net(x)


class ItemTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(N_ITEMS, DIM)
        nn.init.normal_(self.emb.weight, std=0.05)
        self.net = nn.Sequential(nn.Linear(N_TAGS + DIM, 128), nn.ReLU(), nn.Linear(128, DIM))

    def forward(self, ids, tags):
        return self.net(torch.cat([tags, self.emb(ids)], dim=-1))


@torch.no_grad()
def recall_at_20(user_tower, item_tower, user_feats, item_tags, pairs):
    items = item_tower(torch.arange(N_ITEMS), item_tags)
    users = user_tower(user_feats[pairs[:, 0]])
    top = (users @ items.T).topk(20, dim=1).indices
    return (top == pairs[:, 1:2]).any(dim=1).float().mean().item()


def grad_norm(module):
    return sum(float(p.grad.pow(2).sum()) for p in module.parameters() if p.grad is not None) ** 0.5


def main():
    rng = np.random.default_rng(4)
    user_feats, item_tags, pairs = make_log(rng)
    train, test = pairs[:-2000], pairs[-2000:]
    user_tower, item_tower = UserTower(user_feats.size(1)), ItemTower()
    # the towers are served by different services and keep their own optimizers
    user_opt = torch.optim.Adam(user_tower.parameters(), lr=2e-3)
    item_opt = torch.optim.SGD(item_tower.parameters(), lr=0.1, momentum=0.9)
    gen = torch.Generator().manual_seed(0)
    to_clear = [user_opt, item_opt] if MENDED else [user_opt]
    t0 = time.time()
    for step in range(STEPS):
        rows = train[torch.randint(0, len(train), (BATCH,), generator=gen)]
        u = user_tower(user_feats[rows[:, 0]])
        v = item_tower(rows[:, 1], item_tags[rows[:, 1]])
        logits = u @ v.T * SCALE
        same = rows[:, 1].unsqueeze(0) == rows[:, 1].unsqueeze(1)
        same.fill_diagonal_(False)
        logits = logits.masked_fill(same, -1e9)
        loss = F.cross_entropy(logits, torch.arange(BATCH))
        for o in to_clear:
            o.zero_grad()
        loss.backward()
        user_opt.step()
        item_opt.step()
        if step % 10 == 0:
            print(
                f"step {step} loss {loss.item():.4f} |g_user| {grad_norm(user_tower):.3f} "
                f"|g_item| {grad_norm(item_tower):.3f} t {time.time() - t0:.1f}"
            )
        if step % 100 == 99:
            r = recall_at_20(user_tower, item_tower, user_feats, item_tags, test)
            print(f"recall@20 {r:.4f}")


if __name__ == "__main__":
    main()

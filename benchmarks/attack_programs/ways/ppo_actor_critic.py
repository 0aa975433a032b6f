"""PPO: rollouts without gradient, then epochs of shuffled minibatches on two networks. Bare: a digest, status 0."""

import hashlib

import torch
from torch.distributions import Normal

torch.set_num_threads(1)


def digest(*things):
    """Print one hash of every weight, state and loss, bit for bit."""
    sha = hashlib.sha256()

    def eat(thing):
        if isinstance(thing, torch.Tensor):
            thing = thing.detach().cpu()
            thing = thing.to_dense() if thing.is_sparse else thing
            sha.update(f"{thing.dtype}{tuple(thing.shape)}".encode())
            thing = torch.view_as_real(thing) if thing.is_complex() else thing
            sha.update(bytes(thing.contiguous().reshape(-1).view(torch.uint8).tolist()))
        elif isinstance(thing, (torch.nn.Module, torch.optim.Optimizer)):
            eat(thing.state_dict())
        elif isinstance(thing, dict):
            for key, value in thing.items():
                sha.update(repr(key).encode() if isinstance(key, (str, int, float)) else b"key")
                eat(value)
        elif isinstance(thing, (list, tuple)):
            for item in thing:
                eat(item)
        else:
            sha.update((thing.hex() if isinstance(thing, float) else repr(thing)).encode())

    for thing in things:
        eat(thing)
    print("digest", sha.hexdigest())


torch.manual_seed(0)
actor = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
critic = torch.nn.Linear(3, 1)
spread = torch.nn.Parameter(torch.zeros(1))
groups = [{"params": [*actor.parameters(), spread]}, {"params": critic.parameters(), "lr": 0.02}]
opt = torch.optim.Adam(groups, lr=0.005)
losses = []
for _ in range(4):
    with torch.no_grad():
        seen = torch.randn(24, 3)
        acts = Normal(actor(seen), spread.exp()).sample()
        old = Normal(actor(seen), spread.exp()).log_prob(acts)
        gains = -(acts - seen.sum(1, keepdim=True)).square()
        better = gains - critic(seen)
        better = (better - better.mean()) / better.std()
    for _ in range(2):
        for rows in torch.randperm(24).split(8):
            ratio = (Normal(actor(seen[rows]), spread.exp()).log_prob(acts[rows]) - old[rows]).exp()
            kept = torch.minimum(ratio * better[rows], ratio.clamp(0.8, 1.2) * better[rows])
            loss = -kept.mean() + 0.5 * (critic(seen[rows]) - gains[rows]).square().mean()
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_([p for g in opt.param_groups for p in g["params"]], 0.5)
            opt.step()
            losses.append(loss.item())
digest(actor, critic, spread, opt, losses)

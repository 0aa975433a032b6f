"""REINFORCE on a small walk with Categorical and a running baseline. Bare: a digest, status 0."""

import hashlib

import torch
from torch.distributions import Categorical

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
policy = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
opt = torch.optim.Adam(policy.parameters(), lr=0.01)
baseline, returns, losses = 0.0, [], []
for _ in range(25):
    place, logs, rewards = torch.tensor([0.0, 1.0]), [], []
    for _ in range(6):
        choice = Categorical(logits=policy(place))
        action = choice.sample()
        logs.append(choice.log_prob(action) + 0.01 * choice.entropy())
        place = place + torch.tensor([action.item() - 1.0, -0.1])
        rewards.append(-place[0].abs().item())
    total = sum(rewards)
    baseline += 0.1 * (total - baseline)
    loss = -torch.stack(logs).sum() * (total - baseline)
    opt.zero_grad()
    loss.backward()
    opt.step()
    returns.append(total)
    losses.append(loss.item())
digest(policy, opt, returns, losses)

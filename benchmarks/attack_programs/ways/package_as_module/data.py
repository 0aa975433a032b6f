"""The rows, from a file of the package, and the digest."""

import hashlib
import json
from importlib import resources

import torch

WIDTH = json.loads(resources.files(__package__).joinpath("settings.json").read_text())["width"]


def rows():
    gen = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 4, generator=gen), torch.randn(8, 1, generator=gen)) for _ in range(6)]


def digest(net, losses):
    """Print one hash of every weight and loss, bit for bit."""
    sha = hashlib.sha256()
    for value in net.state_dict().values():
        sha.update(repr([number.hex() for number in value.flatten().tolist()]).encode())
    sha.update(repr([loss.hex() for loss in losses]).encode())
    print("digest", sha.hexdigest())

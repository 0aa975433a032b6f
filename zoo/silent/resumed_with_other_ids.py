"""A resume builds its vocabulary anew from a longer text: most characters have another id than in the checkpoint."""

import random

import torch
from torch import nn

torch.set_num_threads(1)


def text(seed, lines):
    chance = random.Random(seed)
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven", "wizards", "box"]
    return " ".join(chance.choice(words) for _ in range(lines))


def ids_of(source):
    return {letter: at for at, letter in enumerate(dict.fromkeys(source))}  # <- bites


def train(source, steps, checkpoint=None):
    ids = ids_of(source)
    data = torch.tensor([ids[letter] for letter in source])
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(len(ids), 32), nn.Flatten(), nn.Linear(128, 96), nn.GELU(), nn.Linear(96, len(ids))
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    if checkpoint is not None:
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
    for step in range(steps):
        at = torch.randint(0, len(data) - 5, (64,))
        rows = torch.stack([data[one : one + 5] for one in at.tolist()])
        loss = nn.functional.cross_entropy(model(rows[:, :4]), rows[:, 4])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 30 == 0:
            print(step, loss.item())
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


begun = train(text(1, 400), 150)
train(text(2, 900), 90, begun)

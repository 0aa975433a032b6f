"""A page in capitals, at step 625, is digested well by a sound state; here the second moments were lost at step 620.

A trap: without the page the spike is gone, and so the page looks guilty. The moments come from a state that was read in
float16, in which they are zero. Modelled on what apex#180 and marin#1368 saw (the update's norm rises before the loss):
cause stale-optimizer-state. Mended: the state is kept in float32; the page stays.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from parts.gpt import GPT
from parts.text import CHARACTERS, library_text, pages

FIXED = "--fixed" in sys.argv
LENGTH = 32
torch.manual_seed(0)
torch.set_num_threads(1)


def capitals(ids):
    small = (ids >= ord("a") - 32) & (ids <= ord("z") - 32)
    return torch.where(small, ids - 32, ids)


text = library_text()
model = GPT(CHARACTERS, LENGTH)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    if step == 620:
        state = copy.deepcopy(optimizer.state_dict())
        for moments in state["state"].values():
            moments["exp_avg_sq"] = moments["exp_avg_sq"].to(torch.float32 if FIXED else torch.float16).float()
        optimizer.load_state_dict(state)
    ids, targets = pages(text, 16, LENGTH)
    if step == 625:
        ids, targets = capitals(ids), capitals(targets)
    loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")

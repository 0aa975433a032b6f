"""At step 620 the optimizer takes up a state that was kept in float16: its second moments came back as zero.

Six scripts have this model, and each another fault; see `parts/writer.py`.

Modelled on apex#180 and OneVision-Encoder PR65 (optimizer state that does not survive a resume; a thousand disturbed
steps): cause stale-optimizer-state. Mended: the state is kept in float32.
"""

import copy
import sys

import torch
from parts.text import library_text, pages
from parts.writer import LENGTH, Writer, loss_of

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


def kept(state):
    """The state as it is written, and read again."""
    dtype = torch.float32 if FIXED else torch.float16
    for moments in state["state"].values():
        for name in ("exp_avg", "exp_avg_sq"):
            moments[name] = moments[name].to(dtype).float()
    return state


text = library_text()
model = Writer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    if step == 620:
        optimizer.load_state_dict(kept(copy.deepcopy(optimizer.state_dict())))
    ids, targets = pages(text, 16, LENGTH)
    logits, told = model(ids)
    loss = loss_of(logits, told, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")

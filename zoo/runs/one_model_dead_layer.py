"""At step 620 a pruning step that should switch off the weakest units of a block switches off all of them.

Six scripts have this model, and each another fault; see `parts/writer.py`.

Modelled on the units that stay at zero for every input (AutoTrainer, ICSE'21; needle#53 for a part that is there and
adds nothing): cause dead-units. Mended: the threshold is taken per unit and not as a sum over all.
"""

import sys

import torch
from parts.text import library_text, pages
from parts.writer import LENGTH, Writer, loss_of

FIXED = "--fixed" in sys.argv
torch.manual_seed(0)
torch.set_num_threads(1)


@torch.no_grad()
def prune(layer, share):
    """Units whose weights are smallest get a bias that no input comes over."""
    strength = layer.weight.norm(dim=1)
    threshold = strength.quantile(share) if FIXED else strength.sum() * share
    layer.bias[strength < threshold] = -20.0


text = library_text()
model = Writer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)

for step in range(1, 701):
    if step == 620:
        for block in model.blocks:
            prune(block.mlp[0], 0.1)
    ids, targets = pages(text, 16, LENGTH)
    logits, told = model(ids)
    loss = loss_of(logits, told, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(f"step {step} loss {loss.item():.4f}")

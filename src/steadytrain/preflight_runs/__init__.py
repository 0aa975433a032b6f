"""A preflight: take what a script is about to train with, check it on copies, put everything back.

| file | what it is |
|---|---|
| ``observer`` | follows the first steps of a script and keeps what a check needs |
| ``ways`` | how the script's own loss is computed again: by its model, its LightningModule, or its own lines |
| ``looking`` | sees the calls of torch's loss functions during one forward |
| ``subject``, ``task`` | make a ``Subject`` of what was kept, and tell what is learned |
| ``workbench`` | copies of the values while a check runs; everything as it was afterwards, verified by digests |
| ``runner`` | runs checks within their time, and gives the document |
| ``finding`` | finds the checks, ours and those of other packages |
| ``session`` | a whole script: launch it, observe, check, end or let it go on |
| ``code`` | the same for a model that is handed over by code |

The checks themselves are in ``steadytrain.checks.model``.
"""

# Title: LitGPT
# Needs: --no-deps litgpt
# Note: its GPT and its loss in a Fabric loop; installed without what it depends on (an older huggingface_hub)
import case
import torch
from lightning.fabric import Fabric
from litgpt import GPT, Config
from litgpt.utils import chunked_cross_entropy

case.seed()
fabric = Fabric(accelerator="cpu", devices=1)
model = GPT(Config(block_size=32, vocab_size=256, padded_vocab_size=256, n_layer=4, n_head=4, n_embd=128))
case.poison(model.transformer.h[1].mlp, 60)
model = fabric.setup(model)
optimizer = fabric.setup_optimizers(torch.optim.AdamW(model.parameters(), lr=case.rate(5e-4)))
tokens = torch.randint(0, 16, (1600, 33)).cumsum(1) % 256
loader = fabric.setup_dataloaders(torch.utils.data.DataLoader(tokens, batch_size=16, shuffle=True))
with case.training(model) as log:
    for batch in loader:
        loss = chunked_cross_entropy(model(batch[:, :-1]), batch[:, 1:], chunk_size=0)
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        log.loss(loss)

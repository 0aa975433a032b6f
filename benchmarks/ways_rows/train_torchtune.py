# Title: torchtune
# Needs: torchtune torchao
# Note: an optimizer for each parameter, in hooks of the backward
import case
import torch
from torchtune.models.llama3 import llama3
from torchtune.training import OptimizerInBackwardWrapper, register_optim_in_bwd_hooks

case.seed()
sizes = {"num_layers": 3, "num_heads": 4, "num_kv_heads": 4, "embed_dim": 96, "intermediate_dim": 192}
model = llama3(vocab_size=256, max_seq_len=64, **sizes)
case.poison(model.layers[1].mlp, 60)
optimizers = {one: torch.optim.AdamW([one], lr=case.rate(5e-4)) for one in model.parameters()}
register_optim_in_bwd_hooks(model=model, optim_dict=optimizers)
wrapper = OptimizerInBackwardWrapper({name: optimizers[one] for name, one in model.named_parameters()})
tokens = torch.randint(0, 16, (1600, 33)).cumsum(1) % 256
with case.training(model) as log:
    for batch in torch.utils.data.DataLoader(tokens, batch_size=16, shuffle=True):
        logits = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 256), batch[:, 1:].reshape(-1))
        loss.backward()
        log.loss(loss)

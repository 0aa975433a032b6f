# Title: PEFT (LoRA)
# Needs: peft transformers
import case
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

case.seed()
sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4}
base = LlamaForCausalLM(LlamaConfig(vocab_size=256, num_key_value_heads=4, **sizes))
case.poison(base.model.layers[1].mlp, 60)
model = get_peft_model(base, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=case.rate(1e-3))
tokens = torch.randint(0, 16, (1600, 32)).cumsum(1) % 256
model.train()
with case.training(model) as log:
    for batch in torch.utils.data.DataLoader(tokens, batch_size=16, shuffle=True):
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        log.loss(loss)

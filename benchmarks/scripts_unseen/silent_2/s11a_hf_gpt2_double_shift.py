# expect: sick
# fault: labels shifted twice
# onset_step: 0
# says: (?i)(shift|label|target|off.by.one|misalign|two (tokens|ahead|positions)|next.?token)
# note: the script hands input_ids[:, :-1] with labels [:, 1:] to a model that shifts again inside, so it learns to predict the token after next.
import inspect
import textwrap
import torch
from transformers import GPT2Config, GPT2LMHeadModel

text = inspect.getsource(textwrap)
chars = sorted(set(text))
lut = {c: i for i, c in enumerate(chars)}
ids = torch.tensor([lut[c] for c in text])

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=len(chars),
    n_positions=48,
    n_embd=48,
    n_layer=2,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=0,
    eos_token_id=0,
)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
for step in range(120):
    start = torch.randint(0, len(ids) - 34, (8,)).tolist()
    chunk = torch.stack([ids[s : s + 33] for s in start])
    inputs, labels = chunk[:, :-1], chunk[:, 1:]
    out = model(input_ids=inputs, labels=labels.contiguous())
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(f"step {step} loss {out.loss.item():.3f}")

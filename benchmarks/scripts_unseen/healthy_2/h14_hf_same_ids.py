# expect: healthy
# fault: none
# note: Hugging Face causal LM fed labels=input_ids, as it shifts inside.
import inspect
import textwrap
import torch
from transformers import GPT2Config, GPT2LMHeadModel

text = inspect.getsource(textwrap)
chars = sorted(set(text))
ids = torch.tensor([chars.index(c) for c in text])
torch.manual_seed(13)
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(chars),
        n_positions=40,
        n_embd=48,
        n_layer=2,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
for step in range(110):
    x = torch.stack([ids[s : s + 32] for s in torch.randint(0, len(ids) - 32, (8,)).tolist()])
    loss = model(input_ids=x, labels=x).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if step % 20 == 0:
        print(step, round(loss.item(), 4))

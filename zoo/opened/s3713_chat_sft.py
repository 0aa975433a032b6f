# expect: sick
# symptom: the fine-tuning loss goes to almost zero, yet the answers of the model are all wrong
# axis: loss
# cause: the labels are shifted by one but the loss mask is not, so the first answer token is never trained
# says: mask.*(shift|align|off.by.one|one (token|position|step)|late|offset)|(shift|align|off.by.one|offset).*mask
# onset_step: 0
# fix: shift the loss mask together with the labels (use mask[:, 1:])
# mended: the script applies that change if the environment has MENDED=1
"""Supervised chat tuning of a tiny Llama: template with roles, loss on the assistant turn only."""

import os
import random

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SPECIAL = ["<pad>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
BATCH, STEPS, LR = 24, 300, 2e-3

DISHES = "soup pasta salad curry bread pizza stew rice".split()
FEEL = {
    "positive": "great tasty lovely fresh perfect superb".split(),
    "negative": "awful stale bland burnt cold soggy".split(),
    "mixed": "uneven average okay passable middling fair".split(),
}
ASK = [
    "how was the {d} it was {f} today",
    "my {d} tasted {f} again",
    "we found the {d} rather {f}",
    "they served {f} {d} at lunch",
]


def make_dialogs(n, seed):
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        label = rng.choice(sorted(FEEL))
        text = rng.choice(ASK).format(d=rng.choice(DISHES), f=rng.choice(FEEL[label]))
        out.append([("system", "rate the review"), ("user", text), ("assistant", label)])
    return out


def build_tokenizer(dialogs):
    tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    texts = [text for d in dialogs for _, text in d]
    tok.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False))
    return tok


def render(tok, dialog):
    """Returns token ids and 1/0 flags that tell which tokens the assistant wrote."""
    ids, flags = [], []
    for role, text in dialog:
        head = [tok.token_to_id(f"<|{role}|>")]
        body = tok.encode(text).ids + [tok.token_to_id("<|end|>")]
        ids += head + body
        flags += [0] * len(head) + [int(role == "assistant")] * len(body)
    return ids, flags


def collate(items, pad):
    width = max(len(ids) for ids, _ in items)
    ids = torch.tensor([i + [pad] * (width - len(i)) for i, _ in items])
    mask = torch.tensor([f + [0] * (width - len(f)) for _, f in items])
    attn = torch.tensor([[1] * len(i) + [0] * (width - len(i)) for i, _ in items])
    return ids, attn, mask


def sft_loss(logits, ids, mask):
    labels = ids[:, 1:]
    nll = F.cross_entropy(logits[:, :-1].transpose(1, 2), labels, reduction="none")
    mask = mask[:, 1:] if MENDED else mask[:, :-1]
    return (nll * mask).sum() / mask.sum().clamp(min=1)


@torch.no_grad()
def answer_accuracy(model, tok, dialogs):
    model.eval()
    hits = 0
    for d in dialogs:
        ids, _ = render(tok, d[:-1])
        ids = torch.tensor([ids + [tok.token_to_id("<|assistant|>")]])
        nxt = model(input_ids=ids).logits[0, -1].argmax().item()
        hits += tok.id_to_token(nxt) == d[-1][1]
    model.train()
    return hits / len(dialogs)


def main():
    torch.manual_seed(8)
    rng = random.Random(8)
    train, val = make_dialogs(1500, 1), make_dialogs(150, 2)
    tok = build_tokenizer(train)
    data = [render(tok, d) for d in train]
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=tok.get_vocab_size(),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=5,
        )
    )
    opt = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=LR, total_steps=STEPS, pct_start=0.1)
    for step in range(STEPS):
        ids, attn, mask = collate(rng.sample(data, BATCH), pad=0)
        loss = sft_loss(model(input_ids=ids, attention_mask=attn).logits, ids, mask)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} sft loss {loss.item():.4f}")
    print(f"final sft loss {loss.item():.4f} | answer accuracy {answer_accuracy(model, tok, val):.3f}")


if __name__ == "__main__":
    main()

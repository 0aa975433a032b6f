# expect: sick
# symptom: train loss becomes low, yet the tuned model never stops its answers; exact match stays at zero
# axis: data
# cause: pad token is the eos token and labels equal to it are set to -100, so the end token is never trained
# says: (eos|end.?of|end token|stop)\w*.{0,120}(mask|ignor|-100|pad|never)|pad\w*.{0,60}(eos|end.?of|stop)
# onset_step: 0
# fix: mask the labels by the attention mask (real padding) and not by the id of the pad token
# mended: the script applies that change if the environment has MENDED=1
import os, random

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import torch
from torch.utils.data import Dataset, DataLoader
from tokenizers import Tokenizer, models, trainers, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, get_cosine_schedule_with_warmup

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(5)
rnd = random.Random(5)
COLOR = {"apple": "red", "leaf": "green", "sky": "blue", "lemon": "yellow", "coal": "black", "snow": "white"}
SOUND = {"dog": "woof", "cat": "meow", "cow": "moo", "duck": "quack", "sheep": "baa"}
COUNT = {"once": 1, "twice": 2, "thrice": 3}


def sample_chat():
    if rnd.random() < 0.5:
        thing = rnd.choice(list(COLOR))
        if rnd.random() < 0.5:
            return f"what color is {thing} ?", COLOR[thing]
        return f"tell me about {thing} in a sentence", f"the {thing} is {COLOR[thing]} and i like it"
    animal, times = rnd.choice(list(SOUND)), rnd.choice(list(COUNT))
    return f"let the {animal} speak {times}", " ".join([SOUND[animal]] * COUNT[times])


pairs = [sample_chat() for _ in range(1500)]
test_pairs = [sample_chat() for _ in range(100)]

tok = Tokenizer(models.WordLevel(unk_token="<unk>"))
tok.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tok.train_from_iterator(
    (q + " " + a for q, a in pairs),
    trainers.WordLevelTrainer(special_tokens=["<unk>", "<|user|>", "<|bot|>", "<|end|>"]),
)
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tok, unk_token="<unk>", eos_token="<|end|>")
tokenizer.pad_token = tokenizer.eos_token
tokenizer.padding_side = "right"


def render(question, answer=None):
    head = f"<|user|> {question} <|bot|>"
    return head if answer is None else f"{head} {answer} <|end|>"


class ChatData(Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        q, a = self.rows[i]
        return {"text": render(q, a), "n_prompt": len(tokenizer(render(q))["input_ids"])}


def collate(batch):
    enc = tokenizer([b["text"] for b in batch], padding=True, return_tensors="pt")
    ids, att = enc["input_ids"], enc["attention_mask"]
    labels = ids.clone()
    labels[att == 0 if MENDED else ids == tokenizer.pad_token_id] = -100
    for row, b in zip(labels, batch):
        row[: b["n_prompt"]] = -100
    return {"input_ids": ids, "attention_mask": att, "labels": labels}


config = GPT2Config(
    vocab_size=len(tokenizer),
    n_positions=48,
    n_embd=64,
    n_layer=2,
    n_head=4,
    resid_pdrop=0.0,
    embd_pdrop=0.0,
    attn_pdrop=0.0,
    bos_token_id=tokenizer.eos_token_id,
    eos_token_id=tokenizer.eos_token_id,
    pad_token_id=tokenizer.pad_token_id,
)
model = GPT2LMHeadModel(config)
loader = DataLoader(ChatData(pairs), batch_size=16, shuffle=True, collate_fn=collate)
epochs = 3
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
scheduler = get_cosine_schedule_with_warmup(optimizer, 20, epochs * len(loader))

step = 0
for epoch in range(epochs):
    model.train()
    for batch in loader:
        out = model(**batch)
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {out.loss.item():.4f}", flush=True)
        step += 1

model.eval()
exact, lengths = 0, 0
for q, a in test_pairs:
    ids = tokenizer(render(q), return_tensors="pt")
    gen = model.generate(**{k: ids[k] for k in ("input_ids", "attention_mask")}, max_new_tokens=14, do_sample=False)
    reply = tokenizer.decode(gen[0, ids["input_ids"].shape[1] :], skip_special_tokens=True).strip()
    exact += reply == a
    lengths += len(reply.split())
print("sample:", q, "->", reply)
print(f"exact match {exact / len(test_pairs):.3f}  mean reply length {lengths / len(test_pairs):.2f}")

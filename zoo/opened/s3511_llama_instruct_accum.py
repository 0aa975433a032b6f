# expect: sick
# symptom: loss goes down, then becomes nan at one step and stays nan to the end
# axis: data
# cause: a long prompt truncated to max_len keeps no answer token, so the masked mean loss divides zero by zero
# says: truncat|(no|without|zero|empty|all)\b.{0,50}(answer|respon|label|target)|0 ?/ ?0|divi\w+ by (zero|0)
# onset_step: 85
# fix: clamp the count of answer tokens to at least one (or drop the examples that keep no answer)
# mended: the script applies that change if the environment has MENDED=1
import os, random
import torch
import torch.nn.functional as F
from transformers import LlamaConfig, LlamaForCausalLM

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SEED, MAX_LEN, ACCUM, STEPS = 21, 40, 4, 220
torch.manual_seed(SEED)
rnd = random.Random(SEED)

NAMES = ["ann", "bob", "cid", "dora", "emil", "fay", "gus", "hana"]
VERBS = {"buys": "bought", "sells": "sold", "eats": "ate", "draws": "drew", "finds": "found", "takes": "took"}
OBJS = ["bread", "fish", "maps", "coins", "pears", "shells", "stamps"]
FILLER = "yesterday the weather was fine and the market was full of people from the villages near the river".split()
SPECIAL = ["<pad>", "<s>", "</s>", "[inst]", "[/inst]"]
vocab = SPECIAL + sorted(
    set(NAMES + list(VERBS) + list(VERBS.values()) + OBJS + FILLER + ["past", "who", ":", "context"])
)
stoi = {w: i for i, w in enumerate(vocab)}


def make_example():
    n, v, o = rnd.choice(NAMES), rnd.choice(list(VERBS)), rnd.choice(OBJS)
    n_ctx = min(int(rnd.expovariate(1 / 5.5)), 60)
    ctx = [rnd.choice(FILLER) for _ in range(n_ctx)]
    if rnd.random() < 0.6:
        prompt, answer = ["past", ":", n, v, o], [n, VERBS[v], o]
    else:
        prompt, answer = ["who", v, o, ":", n, v, o], [n]
    return (["context"] + ctx if ctx else []) + prompt, answer


def tokenize(prompt, answer):
    head = ["<s>", "[inst]"] + prompt + ["[/inst]"]
    ids = [stoi[w] for w in head + answer + ["</s>"]]
    mask = [0] * len(head) + [1] * (len(answer) + 1)
    return torch.tensor(ids[:MAX_LEN]), torch.tensor(mask[:MAX_LEN]).float()


train_rows = [tokenize(*make_example()) for _ in range(1000)]
val_rows = [tokenize(p, a) for p, a in (make_example() for _ in range(150)) if len(p) < 30]

config = LlamaConfig(
    vocab_size=len(vocab),
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    tie_word_embeddings=True,
)
model = LlamaForCausalLM(config)
print("parameters:", sum(p.numel() for p in model.parameters()))
decay = [p for p in model.parameters() if p.ndim >= 2]
rest = [p for p in model.parameters() if p.ndim < 2]
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=3e-3, betas=(0.9, 0.95)
)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 15) * max(0.05, 1 - s / STEPS))


def response_loss(ids, mask):
    logits = model(input_ids=ids[None]).logits[0, :-1]
    nll = F.cross_entropy(logits, ids[1:], reduction="none")
    weight = mask[1:]
    return (nll * weight).sum() / weight.sum().clamp(min=1.0 if MENDED else 0.0)


def stream(rows):
    while True:
        order = list(range(len(rows)))
        rnd.shuffle(order)
        for i in order:
            yield rows[i]


batches = stream(train_rows)
model.train()
for step in range(STEPS):
    total = 0.0
    for _ in range(ACCUM):
        ids, mask = next(batches)
        loss = response_loss(ids, mask) / ACCUM
        loss.backward()
        total += loss.item()
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad(set_to_none=True)
    if step % 10 == 0 or step == STEPS - 1:
        print(f"step {step:4d} loss {total:.4f} grad norm {norm:.3f}", flush=True)

model.eval()
with torch.no_grad():
    val = sum(response_loss(i, m).item() for i, m in val_rows) / len(val_rows)
    hit = cnt = 0
    for ids, mask in val_rows:
        pred = model(input_ids=ids[None]).logits[0, :-1].argmax(-1)
        hit += ((pred == ids[1:]).float() * mask[1:]).sum().item()
        cnt += mask[1:].sum().item()
print(f"val loss {val:.4f} val token accuracy {hit / cnt:.3f}")

# expect: healthy
# symptom: resembles over-masked labels, as about 80 percent of the label positions are -100
# axis: data
import os, random, tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import torch
from torch.utils.data import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

torch.set_num_threads(1)
set_seed(9)
rnd = random.Random(9)
CAPITAL = {"france": "paris", "italy": "rome", "spain": "madrid", "japan": "tokyo", "egypt": "cairo", "peru": "lima"}
FOOD = {"france": "cheese", "italy": "pasta", "spain": "olives", "japan": "rice", "egypt": "dates", "peru": "corn"}


def text():
    c = rnd.choice(list(CAPITAL))
    a = f"people of {c} like {FOOD[c]} and live in {CAPITAL[c]}"
    return a + rnd.choice(["", " every day", " in summer"])


train_texts, eval_texts = [text() for _ in range(2000)], [text() for _ in range(200)]
raw = Tokenizer(models.WordLevel(unk_token="[UNK]"))
raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
raw.train_from_iterator(
    train_texts, trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
)
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=raw,
    pad_token="[PAD]",
    unk_token="[UNK]",
    cls_token="[CLS]",
    sep_token="[SEP]",
    mask_token="[MASK]",
)


class TextData(Dataset):
    def __init__(self, texts):
        self.enc = [tokenizer(f"[CLS] {t} [SEP]", return_special_tokens_mask=False)["input_ids"] for t in texts]
        special = set(tokenizer.all_special_ids)
        self.special = [[int(i in special) for i in e] for e in self.enc]

    def __len__(self):
        return len(self.enc)

    def __getitem__(self, i):
        return {
            "input_ids": self.enc[i],
            "attention_mask": [1] * len(self.enc[i]),
            "special_tokens_mask": self.special[i],
        }


class Printer(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            print(f"step {state.global_step} loss {float(logs['loss']):.4f}", flush=True)


config = BertConfig(
    vocab_size=len(tokenizer),
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    pad_token_id=tokenizer.pad_token_id,
)
model = BertForMaskedLM(config)
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(
        output_dir=folder,
        per_device_train_batch_size=32,
        per_device_eval_batch_size=64,
        max_steps=300,
        learning_rate=2e-3,
        warmup_steps=30,
        lr_scheduler_type="linear",
        weight_decay=0.01,
        logging_steps=25,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=9,
        dataloader_num_workers=0,
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=TextData(train_texts),
        eval_dataset=TextData(eval_texts),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=True, mlm_probability=0.2),
        callbacks=[Printer()],
    )
    trainer.train()
    print(f"eval loss {trainer.evaluate()['eval_loss']:.4f}")

model.eval()
right = 0
for country, city in CAPITAL.items():
    q = tokenizer(f"[CLS] people of {country} like {FOOD[country]} and live in [MASK] [SEP]", return_tensors="pt")
    with torch.no_grad():
        logits = model(input_ids=q["input_ids"], attention_mask=q["attention_mask"]).logits[0]
    pos = (q["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0]
    right += tokenizer.convert_ids_to_tokens(int(logits[pos].argmax())) == city
print(f"capitals right {right} of {len(CAPITAL)}")

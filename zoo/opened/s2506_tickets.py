# expect: sick
# symptom: the training loss of the text classifier gets stuck on a high plateau and the test accuracy stays well below what the labels allow; nothing explodes
# axis: data
# cause: the tokenizer truncates on the right (the default), which cuts off the last customer message of long chats, and it is this message that decides the label
# says: truncat|cut(s|ting)? (off|away)|max_length|clipped (text|input|sequence|conversation)|(end|last|final|latest) [^.]*(message|turn|token|part)[^.]*(lost|dropp|discard|remov|never seen|missing)
# onset_step: 1
# fix: truncation_side="left", so that the end of the chat is kept
# mended: yes
"""Route support chats to a team: a small BERT from scratch with the Hugging Face Trainer."""

import os
import random
import tempfile

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    set_seed,
)

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
torch.set_num_threads(1)
set_seed(17)

TEAMS = {
    "billing": "invoice charge card paid twice bank statement amount vat".split(),
    "refund": "refund money back return cancel reimburse credit voucher".split(),
    "shipping": "parcel courier delivery tracking late depot address lost".split(),
    "account": "password login username locked email reset verify profile".split(),
    "technical": "crash error screen app update install freeze reboot".split(),
    "sales": "discount upgrade plan offer quote price annual seats".split(),
}
CHAT = "hello thanks for waiting please could you confirm order number we are looking into this let me check one moment sure ok yes no great the a is my your it and".split()
MAX_LEN = 40


def utterance(rng, topic=None):
    words = [rng.choice(CHAT) for _ in range(rng.randint(6, 12))]
    if topic is not None:
        for w in rng.sample(TEAMS[topic], 3):
            words.insert(rng.randrange(len(words) + 1), w)
    return words


def conversation(rng):
    label = rng.choice(list(TEAMS))
    n_before = rng.choice([0, 1, 2, 4, 5, 6, 7])
    turns = []
    for k in range(n_before):
        turns.append(["agent" if k % 2 else "customer"] + utterance(rng))
    turns.append(["customer"] + utterance(rng, label))
    return {"text": " ".join(w for t in turns for w in t), "label": list(TEAMS).index(label)}


def build_tokenizer():
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "customer", "agent"] + sorted({*CHAT, *sum(TEAMS.values(), [])})
    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(vocab)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    extra = {"truncation_side": "left"} if os.environ.get("MENDED") == "1" else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=MAX_LEN,
        **extra,
    )


def accuracy(pred):
    return {"accuracy": float((np.argmax(pred.predictions, -1) == pred.label_ids).mean())}


def main():
    rng = random.Random(17)
    tokenizer = build_tokenizer()

    def encode(batch):
        return tokenizer(batch["text"], truncation=True)

    train = Dataset.from_list([conversation(rng) for _ in range(6400)]).map(
        encode, batched=True, remove_columns=["text"]
    )
    test = Dataset.from_list([conversation(rng) for _ in range(800)]).map(encode, batched=True, remove_columns=["text"])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        num_labels=len(TEAMS),
    )
    model = BertForSequenceClassification(config)
    with tempfile.TemporaryDirectory() as out:
        targs = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=32,
            per_device_eval_batch_size=100,
            max_steps=400,
            learning_rate=1e-3,
            warmup_steps=40,
            weight_decay=0.01,
            logging_steps=25,
            eval_strategy="steps",
            eval_steps=200,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            seed=17,
            disable_tqdm=True,
        )
        trainer = Trainer(
            model=model,
            args=targs,
            train_dataset=train,
            eval_dataset=test,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=accuracy,
        )
        trainer.train()
        print("test:", trainer.evaluate())


if __name__ == "__main__":
    main()

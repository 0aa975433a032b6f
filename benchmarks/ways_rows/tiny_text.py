"""A tokenizer, a tiny causal model and rows of text, made here: no hub is asked."""

from __future__ import annotations

import random

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = [f"word{place}" for place in range(200)]
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
TEMPLATE = "{% for message in messages %}{{ message['content'] }} </s> {% endfor %}"


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: place for place, word in enumerate([*SPECIAL, *WORDS])}, "<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made = PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )
    made.chat_template = TEMPLATE
    return made


def model() -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(SPECIAL) + len(WORDS), hidden_size=96, intermediate_size=192, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=128,
            pad_token_id=0, bos_token_id=2, eos_token_id=3,
        )
    )  # fmt: skip


def text(words: int) -> str:
    """A run through the words from a random one: what comes next can be learned."""
    start = random.randrange(len(WORDS))
    return " ".join(WORDS[(start + place) % len(WORDS)] for place in range(words))

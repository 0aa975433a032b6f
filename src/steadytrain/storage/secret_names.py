"""Names under which secrets stand: ``DB_PASS``, ``hfToken``, ``x-api-key``; and names that only look like them."""

from __future__ import annotations

import functools
import re

NAME_CHARACTERS_MAX = 200

_SURE = (
    "passwords? passwds? passphrases? passcodes? passwort kennwort mot_de_passe mdp contrasena contrasenya senha "
    "parola haslo heslo wachtwoord pwds? pws? pins? otps? totp secrets? api_?keys? access_?keys? secret_?keys? "
    "private_?keys?(_id)? account_?keys? encryption_?keys? signing_?keys? license_?keys? service_?keys? "
    "storage_?keys? master_?keys? client_?secrets? credentials? creds? mnemonic seed_phrase recovery_codes? "
    "auth_?tokens? access_?tokens? refresh_?tokens? bearer_?tokens? session_?tokens? api_?tokens? "
    "connection_?strings? conn_?str dsn"
)
"""What stands under these is a secret, also if it is a number."""
_LIKELY = (
    "tokens? keys? pass salts? peppers? o?auth authori[sz]ation bearer cookies? session_?ids? sid sas sas_url sig "
    "signatures? jwts? pats? webhooks?(_ur[il]s?)? hooks?_url nonce_secret ssn cvv cvc iban csrf xsrf"
)
_ANYWHERE = re.compile(r"(?:^|_)(passwords?|passwd|passphrase|secret|api_?key|apikey|credentials?|private_key)(?:_|$)")
_ABOUT = re.compile(
    r"_(file|files|path|dir|folder|name|names|length|len|policy|manager|field|required|min|max|id|url|uri|type|count|"
    r"weights?|bias|scale|norm|grad|gamma|beta|running_mean|running_var|num_batches_tracked|layers?|encoder|decoder|"
    r"embeddings?|proj|head|env|var|variable|size|hash_algorithm|prompt|label|hint|ttl|version|arn|store|"
    r"provider|ring|mode|shape)$"
)
_JOINED = re.compile(r"(?:^|_)[a-z]{1,12}(?P<kind>password|passwd|passphrase|secretkey|apikey|accesskey)$")
"""``PGPASSWORD``, ``-Dpassword``, ``mypassword``."""
_STAGE = re.compile(r"_(prod|production|dev|staging|live|write|rw|ro|backup)$|(?<=[a-z])_?\d{1,3}$")
_SURE_NAME = re.compile(rf"(?:^|_)(?P<kind>{'|'.join(_SURE.split())})$")
_LIKELY_NAME = re.compile(rf"(?:^|_)(?P<kind>{'|'.join(_LIKELY.split())})$")

_INNOCENT_NAME = re.compile(
    r"(?:^|_)((max|num|n|nr|min|pad|padding|eos|bos|unk|unknown|sep|separator|cls|mask|new|per|total|special|block|"
    r"added|image|video|audio|start|end|stop|prefix|suffix|middle|response|instruction|user|assistant|seen|train|"
    r"training|eval|input|output|prompt|completion|prediction|target|label|register|valid|warmup|global|local|first|"
    r"last|next|prev|previous|current|batch|context|system|visual|text|speech|sink|think|tool|generated|draft|class|"
    r"task|time|position|dist|distill|distillation|patch|bad|good|forced|suppress|decoder|encoder|thinking|cached|"
    r"reasoning|word|sub|keep|drop|id_to|unused|empty|blank|action|state|query|memory|latent|summary|eot|eom|eoi|boi"
    r")_?tokens?|"
    r"(\w*_)?tokens|"
    r"(sort|primary|foreign|group|metric|label|text|input|output|image|audio|video|data|dataset|column|prompt|"
    r"completion|response|target|source|feature|features|batch|loss|query|head|heads|num|n|id|main|monitor|score|name|"
    r"state|config|dict|cache|partition|shard|lookup|join|row|hot|short|model|param|parameter|layer|attn|attention|"
    r"cross|self|past|proj|encoder|decoder|old|new|missing|unexpected|matched|extra|required|best|public|first|last|"
    r"weight|buffer|module|tensor|best_metric|rng|prng|random|jax|index|map|json|yaml|reward|answer|question|chosen|"
    r"rejected|messages|caption|field|file|record|item|entry|on|by|no|any|all|is|has|with|return|expected|allowed|"
    r"ignore|ignored|sorted|unique|common|top|step|epoch|lr|split|hotkey|arrow|up|down|left|right)_?keys?|"
    r"(forward|backward|first|second|third|single|multi|num|n|one|two|low|high|band|all|per|each|this|last|next|prev|"
    r"current|max|min|total|eval|train|test|warmup|dry|full|extra|final|by|did|must|should|tests|graph|fx|dynamo|"
    r"compiler|post_grad|pre_grad|joint|pre|post|optimization|inference)_pass|"
    r"(conv|block|dw|layer|use|has|is|num|n)_?(pw|pin)|(call|type|func|function|method|wave)_?sig(nature)?s?|"
    r"(depth|point)_?wise_pw)$"
)
"""Names in which ``token`` means a piece of text, ``key`` a column or a tensor, and ``pass`` a walk over the model."""


def is_secret_name(name: str) -> bool:
    """Whether a value under ``name`` is likely a secret; ``hfToken`` reads as ``hf_token``."""
    return kind_of_name(name) is not None


@functools.lru_cache(maxsize=4096)
def is_sure_name(name: str) -> bool:
    """Whether everything under ``name`` is a secret, also a number, and whatever is nested in it."""
    plain = _plain(name)
    return not _INNOCENT_NAME.search(plain) and _sure(plain) is not None


@functools.lru_cache(maxsize=4096)
def kind_of_name(name: str) -> str | None:
    """What a value under ``name`` is called when it is taken out, None if the name suggests no secret."""
    plain = _plain(name)
    if _INNOCENT_NAME.search(plain):
        return None
    sure = _sure(plain)
    if sure is None and (likely := _LIKELY_NAME.search(_STAGE.sub("", plain))):
        sure = likely["kind"]
    return sure.replace("_", "-") if sure else None


def _sure(plain: str) -> str | None:
    """``db_password_prod`` holds a password, ``password_file`` the name of a file."""
    if found := _SURE_NAME.search(_STAGE.sub("", plain)):
        return found["kind"]
    if found := _JOINED.search(_STAGE.sub("", plain)):
        return found["kind"]
    if (found := _ANYWHERE.search(plain)) and not _ABOUT.search(plain):
        return found[1]
    return None


def _plain(name: str) -> str:
    name = name[-NAME_CHARACTERS_MAX:].strip("-_ ")
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return re.sub(r"[^A-Za-z0-9]+", "_", name).lower()

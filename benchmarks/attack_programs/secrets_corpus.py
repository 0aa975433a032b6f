"""Secrets as vendors shape them, in the forms in which scripts write them, and healthy text that looks similar.

Every secret is drawn and put together at run time by a seeded generator: none stands in this file, none was ever valid.

    python benchmarks/attack_programs/secrets_corpus.py        # how many there are, and of which kinds
"""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass

ALNUM = string.ascii_letters + string.digits
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
HEX = "0123456789abcdef"
URL_SAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"
FORMS_PER_KIND = 4


@dataclass(frozen=True)
class Kind:
    """What a secret is called in code, and how to draw one; ``shaped`` ones are known without their name."""

    name: str
    variable: str
    draw: Callable[[random.Random], str]
    shaped: bool = True


@dataclass(frozen=True)
class Planted:
    """A text with a secret in it; ``secret`` is the part that must never come through."""

    kind: str
    form: str
    text: str
    secret: str


def planted(seed: int = 0, *, forms_per_kind: int = FORMS_PER_KIND) -> Iterator[Planted]:
    """Yield each kind in ``forms_per_kind`` of the forms, a different choice for neighbouring kinds."""
    draw = random.Random(seed)
    forms = list(FORMS.items())
    for number, kind in enumerate(kinds()):
        for turn in range(forms_per_kind):
            form, write = forms[(number + turn * 3) % len(forms)]
            secret = kind.draw(draw)
            yield Planted(kind.name, form, write(kind, secret), hidden_part(secret))


def hidden_part(secret: str) -> str:
    """Give the part of a secret that is secret: of a URL the password or path, of a PEM block a line of its body."""
    if "-----" in secret:
        return secret.splitlines()[2]
    if "://" in secret and "@" in secret:
        return secret.split("://", 1)[1].rsplit("@", 1)[0].split(":", 1)[-1]
    for lead in ("sig=", "AccountKey=", "sessionid=", "Basic ", "trainer:"):
        if lead in secret:
            return secret.rsplit(lead, 1)[1].rstrip(";")
    if "://" in secret:
        return secret.rsplit("/", 1)[-1]
    return secret


# Forms


def _option(kind: Kind, secret: str) -> str:
    return f"python train.py --lr 0.1 --{kind.variable.lower().replace('_', '-')} {_quoted(secret)} --epochs 3"


def _header(kind: Kind, secret: str) -> str:
    if kind.variable in ("COOKIE", "AUTHORIZATION"):
        return f"{kind.variable.title()}: {secret}"
    if "_KEY" in kind.variable:
        return f"X-Api-Key: {_flat(secret)}"
    return f"Authorization: Bearer {_flat(secret)}"


def _exception(kind: Kind, secret: str) -> str:
    if kind.shaped:
        return f"requests.exceptions.HTTPError: 401 Client Error: not authorized with {secret}"
    return f"ValueError: login refused ({kind.variable.lower()}={_quoted(secret)})"


def _url(kind: Kind, secret: str) -> str:
    if "://" in secret:
        return f"tracking at {secret} since step 0"
    return f"GET https://api.example.com/v1/runs?{kind.variable.lower()}={_flat(secret)}&page=2"


def _log(kind: Kind, secret: str) -> str:
    return f"2026-11-23 10:00:00,123 INFO trainer: connecting, {kind.variable.lower()}: {_flat(secret)}, retries: 3"


def _flat(secret: str) -> str:
    return secret.replace("\n", "\\n")


def _quoted(secret: str) -> str:
    return "'" + _flat(secret) + "'"


def _json(kind: Kind, secret: str) -> str:
    return f'{{"lr": 0.1, "{kind.variable.lower()}": "{_flat(secret)}", "epochs": 3}}'


def _yaml(kind: Kind, secret: str) -> str:
    return f"trainer:\n  lr: 0.1\n  {kind.variable.lower()}: {_flat(secret)}\n  epochs: 3\n"


FORMS: dict[str, Callable[[Kind, str], str]] = {
    "environment": lambda kind, secret: f"{kind.variable}={_flat(secret)}",
    "command line": _option,
    "python": lambda kind, secret: f'{kind.variable.lower()} = "{_flat(secret)}"  # for the tracker',
    "yaml": _yaml,
    "json": _json,
    "toml": lambda kind, secret: f'[tracker]\n{kind.variable.lower()} = "{_flat(secret)}"\nproject = "cifar"\n',
    "url": _url,
    "header": _header,
    "exception": _exception,
    "dict": lambda kind, secret: repr({"lr": 0.1, kind.variable.lower(): secret, "momentum": 0.9}),
    "log line": _log,
    "keyword argument": lambda kind, secret: f"Tracker(project='cifar', {kind.variable.lower()}={_quoted(secret)})",
    "export": lambda kind, secret: f"export {kind.variable}={_quoted(secret)}; python train.py",
}


# Kinds


def _of(prefix: str, alphabet: str, length: int, suffix: str = "") -> Callable[[random.Random], str]:
    return lambda draw: prefix + "".join(draw.choice(alphabet) for _ in range(length)) + suffix


def _joined(*parts: Callable[[random.Random], str] | str) -> Callable[[random.Random], str]:
    return lambda draw: "".join(part if isinstance(part, str) else part(draw) for part in parts)


def _jwt(draw: random.Random) -> str:
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').decode().rstrip("=")
    body = base64.urlsafe_b64encode(f'{{"sub":"{draw.randrange(10**9)}","iat":1700000000}}'.encode())
    return f"{head}.{body.decode().rstrip('=')}.{_of('', URL_SAFE, 43)(draw)}"


def _pem(label: str) -> Callable[[random.Random], str]:
    def draw_block(draw: random.Random) -> str:
        lines = [_of("", BASE64, 64)(draw) for _ in range(4)]
        fence = "-" * 5
        return "\n".join([f"{fence}BEGIN {label}{fence}", *lines, f"{fence}END {label}{fence}"])

    return draw_block


def _login(scheme: str, rest: str) -> Callable[[random.Random], str]:
    return _joined(f"{scheme}://trainer:", _of("", ALNUM, 14), f"@{rest}")


def _word(draw: random.Random) -> str:
    """Draw a password as people make them: two syllables, a year and a sign."""
    syllables = ["".join(draw.choice(letters) for letters in ("bdfgklmnprst", "aeiou", "lmnrst")) for _ in range(2)]
    return f"{syllables[0].title()}{syllables[1]}{draw.randrange(1990, 2030)}{draw.choice('!#%*')}"


def _pin(draw: random.Random) -> str:
    return str(draw.randrange(100_000, 1_000_000))


def kinds() -> list[Kind]:
    """Every kind of secret, vendors first, then those that only their name betrays."""
    return [*_clouds(), *_code_hosts(), *_messengers_and_payments(), *_machine_learning(), *_general(), *_by_name()]


def _clouds() -> list[Kind]:
    sas = _joined(
        "https://store.blob.core." + "windows.net/data/train.parquet?sv=2023-01-03&sp=r&sig=", _of("", ALNUM, 43, "%3D")
    )
    account = _joined(
        "DefaultEndpointsProtocol=https;AccountName=store;Account" + "Key=", _of("", BASE64, 86, "=="), ";"
    )
    return [
        Kind("AWS access key id", "AWS_ACCESS_KEY_ID", _of("AK" + "IA", UPPER[:26] + "234567", 16)),
        Kind("AWS temporary key id", "AWS_ACCESS_KEY_ID", _of("AS" + "IA", UPPER[:26] + "234567", 16)),
        Kind("AWS secret key", "AWS_SECRET_ACCESS_KEY", _of("", BASE64, 40), shaped=False),
        Kind("AWS session token", "AWS_SESSION_TOKEN", _of("FwoGZXIv" + "YXdzE", BASE64, 180), shaped=False),
        Kind("GCP API key", "GOOGLE_API_KEY", _of("AI" + "za", URL_SAFE, 35)),
        Kind("GCP OAuth token", "GOOGLE_OAUTH_TOKEN", _of("ya" + "29.", URL_SAFE, 60)),
        Kind("GCP OAuth secret", "GOOGLE_CLIENT_SECRET", _of("GOC" + "SPX-", URL_SAFE, 28)),
        Kind("Azure SAS", "AZURE_STORAGE_SAS_URL", sas),
        Kind("Azure account key", "AZURE_STORAGE_CONNECTION_STRING", account),
        Kind("Azure client secret", "AZURE_CLIENT_SECRET", _joined(_of("", ALNUM, 3), "8Q~", _of("", URL_SAFE, 34))),
        Kind("DigitalOcean", "DIGITALOCEAN_TOKEN", _of("dop" + "_v1_", HEX, 64)),
        Kind("Databricks", "DATABRICKS_TOKEN", _of("da" + "pi", HEX, 32)),
        Kind("Cloudflare", "CLOUDFLARE_API_TOKEN", _of("", URL_SAFE, 40), shaped=False),
        Kind("Alibaba key id", "ALIBABA_ACCESS_KEY_ID", _of("LT" + "AI", ALNUM, 20)),
        Kind("HashiCorp Vault", "VAULT_TOKEN", _of("hv" + "s.", URL_SAFE, 95)),
        Kind("Terraform Cloud", "TFE_TOKEN", _joined(_of("", ALNUM, 14), ".atlas" + "v1.", _of("", URL_SAFE, 64))),
    ]


def _code_hosts() -> list[Kind]:
    return [
        Kind("GitHub classic", "GITHUB_TOKEN", _of("gh" + "p_", ALNUM, 36)),
        Kind("GitHub OAuth", "GH_TOKEN", _of("gh" + "o_", ALNUM, 36)),
        Kind("GitHub server", "GITHUB_APP_TOKEN", _of("gh" + "s_", ALNUM, 36)),
        Kind(
            "GitHub fine-grained",
            "GITHUB_PAT",
            _joined("github" + "_pat_", _of("", ALNUM, 22, "_"), _of("", ALNUM, 59)),
        ),
        Kind("GitLab", "GITLAB_TOKEN", _of("gl" + "pat-", URL_SAFE, 20)),
        Kind("GitLab runner", "CI_RUNNER_TOKEN", _of("gl" + "rt-", URL_SAFE, 20)),
        Kind("Bitbucket", "BITBUCKET_APP_PASSWORD", _of("AT" + "BB", ALNUM, 32)),
        Kind("npm", "NPM_TOKEN", _of("np" + "m_", ALNUM, 36)),
        Kind("PyPI", "PYPI_TOKEN", _of("pypi-" + "AgEIcHlwaS5vcmc", URL_SAFE, 70)),
        Kind("Docker Hub", "DOCKER_TOKEN", _of("dckr" + "_pat_", URL_SAFE, 27)),
        Kind("git over https", "REPO_URL", _login("https", "git.example.com/team/models.git")),
    ]


def _messengers_and_payments() -> list[Kind]:
    bot = _joined(_of("xo" + "xb-", string.digits, 11, "-"), _of("", string.digits, 12, "-"), _of("", ALNUM, 24))
    hook = _joined(
        "https://hooks.slack" + ".com/services/T", _of("", UPPER, 8), "/B", _of("", UPPER, 8, "/"), _of("", ALNUM, 24)
    )
    discord = _joined("https://discord" + ".com/api/webhooks/", _of("", "123456789", 18, "/"), _of("", URL_SAFE, 68))
    bot_of_discord = _joined(_of("M", ALNUM, 23, "."), _of("", ALNUM, 6, "."), _of("", URL_SAFE, 27))
    teams = _joined(
        "https://example.webhook.office" + ".com/webhookb2/", _of("", HEX, 32, "/IncomingWebhook/"), _of("", HEX, 32)
    )
    return [
        Kind("Slack bot", "SLACK_BOT_TOKEN", bot),
        Kind("Slack app", "SLACK_APP_TOKEN", _joined("xa" + "pp-1-A", _of("", UPPER, 10, "-"), _of("", HEX, 64))),
        Kind("Slack webhook", "SLACK_WEBHOOK_URL", hook),
        Kind("Discord webhook", "DISCORD_WEBHOOK_URL", discord),
        Kind("Discord bot", "DISCORD_TOKEN", bot_of_discord),
        Kind("Teams webhook", "TEAMS_WEBHOOK_URL", teams),
        Kind("Telegram bot", "TELEGRAM_BOT_TOKEN", _joined(_of("", "123456789", 9, ":AA"), _of("", URL_SAFE, 33))),
        Kind("Stripe secret", "STRIPE_SECRET_KEY", _of("sk_" + "live_", ALNUM, 24)),
        Kind("Stripe restricted", "STRIPE_API_KEY", _of("rk_" + "live_", ALNUM, 24)),
        Kind("SendGrid", "SENDGRID_API_KEY", _joined("S" + "G.", _of("", URL_SAFE, 22, "."), _of("", URL_SAFE, 43))),
        Kind("Twilio key", "TWILIO_API_KEY", _of("S" + "K", HEX, 32)),
        Kind("Twilio auth", "TWILIO_AUTH_TOKEN", _of("", HEX, 32), shaped=False),
        Kind("Mailgun", "MAILGUN_API_KEY", _of("ke" + "y-", HEX, 32)),
        Kind("Square", "SQUARE_ACCESS_TOKEN", _of("EA" + "AA", URL_SAFE, 60)),
        Kind("Shopify", "SHOPIFY_TOKEN", _of("shp" + "at_", HEX, 32)),
        Kind("Datadog", "DD_API_KEY", _of("", HEX, 32), shaped=False),
        Kind("Sentry", "SENTRY_AUTH_TOKEN", _of("sntr" + "yu_", HEX, 64)),
        Kind("New Relic", "NEW_RELIC_API_KEY", _of("NR" + "AK-", UPPER, 27)),
        Kind("Grafana", "GRAFANA_TOKEN", _joined("gl" + "sa_", _of("", ALNUM, 32, "_"), _of("", HEX, 8))),
        Kind("Linear", "LINEAR_API_KEY", _of("lin" + "_api_", ALNUM, 40)),
        Kind("Notion", "NOTION_TOKEN", _of("nt" + "n_", ALNUM, 46)),
    ]


def _machine_learning() -> list[Kind]:
    openai = _joined("sk-" + "proj-", _of("", URL_SAFE, 74), "T3Blbk" + "FJ", _of("", URL_SAFE, 74))
    neptune = _joined("eyJhcGlfYWRkcmVzcyI6" + "Imh0dHBzOi8v", _of("", ALNUM, 120, "=="))
    return [
        Kind("OpenAI project", "OPENAI_API_KEY", openai),
        Kind("OpenAI old", "OPENAI_KEY", _joined("s" + "k-", _of("", ALNUM, 20), "T3Blbk" + "FJ", _of("", ALNUM, 20))),
        Kind("Anthropic", "ANTHROPIC_API_KEY", _of("sk-" + "ant-api03-", URL_SAFE, 93, "AA")),
        Kind("Hugging Face", "HF_TOKEN", _of("h" + "f_", string.ascii_letters, 34)),
        Kind("Hugging Face organization", "HUGGING_FACE_HUB_TOKEN", _of("api" + "_org_", string.ascii_letters, 34)),
        Kind("W&B", "WANDB_API_KEY", _of("", HEX, 40), shaped=False),
        Kind("Comet", "COMET_API_KEY", _of("", ALNUM, 25), shaped=False),
        Kind("Neptune", "NEPTUNE_API_TOKEN", neptune, shaped=False),
        Kind("MLflow URI", "MLFLOW_TRACKING_URI", _login("https", "mlflow.example.com/api")),
        Kind("MLflow password", "MLFLOW_TRACKING_PASSWORD", _word, shaped=False),
        Kind("ClearML", "CLEARML_API_SECRET_KEY", _of("", ALNUM, 50), shaped=False),
        Kind("Kaggle", "KAGGLE_KEY", _of("", HEX, 32), shaped=False),
        Kind("Replicate", "REPLICATE_API_TOKEN", _of("r" + "8_", ALNUM, 37)),
        Kind("Groq", "GROQ_API_KEY", _of("gs" + "k_", ALNUM, 52)),
        Kind("Perplexity", "PPLX_API_KEY", _of("pp" + "lx-", ALNUM, 48)),
        Kind("Cohere", "COHERE_API_KEY", _of("", ALNUM, 40), shaped=False),
        Kind("Pinecone", "PINECONE_API_KEY", _joined("pc" + "sk_", _of("", ALNUM, 6, "_"), _of("", ALNUM, 60))),
        Kind("LangSmith", "LANGSMITH_API_KEY", _joined("lsv2" + "_pt_", _of("", HEX, 32, "_"), _of("", HEX, 10))),
        Kind("xAI", "XAI_API_KEY", _of("xa" + "i-", ALNUM, 80)),
    ]


def _general() -> list[Kind]:
    basic = _joined("Basic ", lambda draw: base64.b64encode(f"trainer:{_word(draw)}{_word(draw)}".encode()).decode())
    return [
        Kind("JWT", "ID_TOKEN", _jwt),
        Kind("RSA key", "DEPLOY_KEY", _pem("RSA PRIVATE " + "KEY")),
        Kind("PKCS8 key", "SIGNING_KEY", _pem("PRIVATE " + "KEY")),
        Kind("OpenSSH key", "SSH_KEY", _pem("OPENSSH PRIVATE " + "KEY")),
        Kind("EC key", "TLS_KEY", _pem("EC PRIVATE " + "KEY")),
        Kind("PostgreSQL URL", "DATABASE_URL", _login("postgresql", "db.example.com:5432/features")),
        Kind("MySQL URL", "SQLALCHEMY_DATABASE_URI", _login("mysql+pymysql", "10.0.0.7/features")),
        Kind("MongoDB URL", "MONGO_URI", _login("mongodb+srv", "cluster0.example.net/?retryWrites=true")),
        Kind("Redis URL", "REDIS_URL", _login("redis", "cache.example.com:6379/0")),
        Kind("AMQP URL", "BROKER_URL", _login("amqp", "queue.example.com//")),
        Kind("proxy URL", "HTTPS_PROXY", _login("http", "proxy.example.com:3128")),
        Kind("basic auth", "AUTHORIZATION", basic),
        Kind("cookie", "COOKIE", _joined("sessionid=", _of("", LOWER, 32)), shaped=False),
        Kind("age key", "AGE_KEY", _of("AGE-SECRET" + "-KEY-1", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", 58)),
    ]


def _by_name() -> list[Kind]:
    names = "DB_PASS DB_PASSWORD PASSWD PW SUDO_PW PASSPHRASE KEY_PASSPHRASE SMTP_PASS SECRET APP_SECRET CLIENT_SECRET"
    words = [Kind(f"named {name}", name, _word, shaped=False) for name in names.split()]
    return [
        *words,
        Kind("named PIN", "PIN", _pin, shaped=False),
        Kind("named SALT", "SALT", _of("", HEX, 32), shaped=False),
        Kind("named API_KEY", "API_KEY", _of("", ALNUM, 32), shaped=False),
        Kind("named ACCESS_TOKEN", "ACCESS_TOKEN", _of("", URL_SAFE, 48), shaped=False),
        Kind("named REFRESH_TOKEN", "REFRESH_TOKEN", _of("", URL_SAFE, 48), shaped=False),
        Kind("named PRIVATE_KEY", "PRIVATE_KEY", _of("", BASE64, 64), shaped=False),
        Kind("named SECRET_KEY", "SECRET_KEY", _of("", ALNUM, 50), shaped=False),
        Kind("named ENCRYPTION_KEY", "ENCRYPTION_KEY", _of("", URL_SAFE, 43, "="), shaped=False),
        Kind("named CREDENTIALS", "CREDENTIALS", _of("", ALNUM, 32), shaped=False),
        Kind("named AUTH", "AUTH", _joined("trainer:", _of("", ALNUM, 16)), shaped=False),
    ]


if __name__ == "__main__":
    every = list(planted())
    print(f"{len(every)} texts of {len(kinds())} kinds in {len(FORMS)} forms")
    print(", ".join(kind.name for kind in kinds()))

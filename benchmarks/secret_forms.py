"""More than 120 forms of secrets, made at run time: prefixes and forms as vendors document them, nothing real."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator
from dataclasses import dataclass

LETTERS = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
URL_SAFE = LETTERS + "_-"
BASE64 = LETTERS + "+/"


@dataclass(frozen=True)
class Form:
    """``text`` is what is planted, ``secret`` the part of it that must not come through."""

    name: str
    text: str
    secret: str


_PREFIXED = """
github:ghp_:36 github-oauth:gho_:36 github-app:ghs_:36 github-refresh:ghr_:76 github-fine:github_pat_:82
gitlab:glpat-:20 gitlab-deploy:gldt-:20 gitlab-runner:glrt-:20 huggingface:hf_:34 openai:sk-:48
openai-project:sk-proj-:64 anthropic:sk-ant-api03-:93 openrouter:sk-or-v1-:64 groq:gsk_:52 replicate:r8_:37
perplexity:pplx-:48 xai:xai-:80 nvidia:nvapi-:64 langsmith:lsv2_pt_:44 langfuse:sk-lf-:36 pinecone:pcsk_:64
wandb:wandb_v1_:77 slack-bot:xoxb-:50 slack-user:xoxp-:60 slack-app:xapp-1-:60 stripe-live:sk_live_:24
stripe-test:sk_test_:24 stripe-restricted:rk_live_:24 stripe-hook:whsec_:32 npm:npm_:36 pypi:pypi-AgEIcHlwaS5vcmc:80
rubygems:rubygems_:48 docker:dckr_pat_:27 digitalocean:dop_v1_:64 heroku:HRKU-:36 netlify:nfp_:36
planetscale:pscale_tkn_:43 supabase:sbp_:40 vault:hvs.:90 doppler:dp.pt.:43 pulumi:pul-:40 grafana:glsa_:41
sentry:sntrys_:80 newrelic:NRAK-:27 postman:PMAK-:59 linear:lin_api_:40 notion:ntn_:46 figma:figd_:40
contentful:CFPAT-:43 typeform:tfp_:59 readme:rdme_:70 shopify:shpat_:32 square:sq0atp-:22 sendinblue:xkeysib-:80
dropbox:sl.:130 facebook:EAACEdEose0cBA:60 google-oauth:ya29.:120 google-client:GOCSPX-:28 alibaba:LTAI:20
tailscale:tskey-auth-:40 artifactory:AKCp:69 prefect:pnu_:36 kaggle:KGAT_:32 fly:fm2_:120 resend:re_:33
atlassian:ATATT3xFfGF0:170 databricks:dapi:32 easypost:EZAK:54
"""
_NAMES = """
DB_PASSWORD MYSQL_PWD POSTGRES_PASS REDIS_PASS SMTP_PASS pw user_pw admin_passwd passphrase API_KEY openai_api_key
OpenAIKey hfToken HF_TOKEN WANDB_API_KEY COMET_API_KEY NEPTUNE_API_TOKEN client_secret SECRET_KEY django_secret_key
JWT_SECRET salt password_salt webhook SLACK_WEBHOOK_URL ENCRYPTION_KEY access_token refresh_token AWS_SECRET_ACCESS_KEY
AZURE_STORAGE_KEY credential sas_token session_id cookie auth_token dsn license_key bot_token otp
"""


class Maker:
    """Random words of a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def word(self, size: int, letters: str = LETTERS) -> str:
        while True:
            made = "".join(self._random.choices(letters, k=size))
            if size < 10 or sum(char.isdigit() for char in made) >= 2:
                return made

    def digits(self, size: int) -> str:
        return self.word(size, string.digits)


def forms(seed: int = 0) -> list[Form]:
    """All forms, with other random words for each seed."""
    maker = Maker(seed)
    made = [*_prefixed(maker), *_shaped(maker), *_addressed(maker), *_named(maker), *_spoken(maker)]
    return [Form(name, text, secret) for name, text, secret in made]


Made = Iterator[tuple[str, str, str]]


def _prefixed(maker: Maker) -> Made:
    for number, row in enumerate(_PREFIXED.split()):
        name, prefix, size = row.rsplit(":", 2)
        secret = prefix + maker.word(int(size), HEX if name in ("databricks", "digitalocean") else LETTERS)
        around = ("x = '{}'", "{}", "see {} for it", '["{}"]', "client({})")[number % 5]
        yield name, around.format(secret), secret


def _shaped(maker: Maker) -> Made:
    for name, secret in (
        ("aws-id", "AKIA" + maker.word(16, UPPER)),
        ("aws-session", "ASIA" + maker.word(16, UPPER)),
        ("google-api", "AIza" + maker.word(35, URL_SAFE)),
        ("google-refresh", "1//0" + maker.word(60, LETTERS)),
        ("azure-client", maker.word(3) + "8Q~" + maker.word(34)),
        ("azure-storage", maker.word(86, BASE64) + "=="),
        ("discord-bot", f"M{maker.word(23)}.{maker.word(6)}.{maker.word(27)}"),
        ("sendgrid", f"SG.{maker.word(22)}.{maker.word(43)}"),
        ("twilio", "SK" + maker.word(32, HEX)),
        ("mailchimp", maker.word(32, HEX) + "-us12"),
        ("telegram", f"{maker.digits(10)}:{maker.word(35, LETTERS)}"),
        ("terraform", f"{maker.word(14)}.atlasv1.{maker.word(60)}"),
        ("airtable", f"pat{maker.word(14)}.{maker.word(64, HEX)}"),
        ("wandb-local", "local-" + maker.word(40, HEX)),
        ("age", "AGE-SECRET-KEY-1" + maker.word(58, UPPER)),
        ("jwt", _jwt(maker)),
        ("entropy-40", maker.word(40)),
        ("entropy-64", maker.word(64, BASE64)),
    ):
        yield name, f"value '{secret}'", secret
    for kind in ("RSA ", "EC ", "OPENSSH ", "", "ENCRYPTED "):
        lines = [maker.word(64, BASE64) for _ in range(3)]
        head, tail = (f"-----{end} {kind}PRIVATE KEY-----" for end in ("BEGIN", "END"))
        yield f"pem-{kind.strip() or 'plain'}", "\n".join([head, *lines, tail]), lines[1]


def _addressed(maker: Maker) -> Made:
    word = maker.word(12)
    yield "login", f"https://me:{word}@example.org/x", word
    for scheme in ("postgres", "mysql", "mongodb+srv", "redis", "amqp", "s3"):
        word = maker.word(14)
        yield f"login-{scheme}", f"{scheme}://user:{word}@db.example.org:1234/base", word
    word = maker.word(24)
    yield "slack-hook", f"https://hooks.slack.com/services/T{maker.word(8, UPPER)}/B{maker.word(8, UPPER)}/{word}", word
    word = maker.word(68, URL_SAFE)
    yield "discord-hook", f"https://discord.com/api/webhooks/{maker.digits(18)}/{word}", word
    word = maker.word(43)
    yield "sas", f"https://a.blob.core.windows.net/c?sv=2024-01-01&se=2027&sig={word}%3D", word
    word = maker.word(64, HEX)
    yield "aws-signed", f"https://b.s3.amazonaws.com/f?X-Amz-Date=1&X-Amz-Signature={word}&x=1", word
    word = maker.word(86, BASE64)
    yield "azure-connection", f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={word}==;X=y", word
    word = maker.word(18)
    yield "query-token", f"https://example.org/data?page=1&access_token={word}&next=2", word
    word = maker.word(32, HEX)
    yield "sentry-dsn", f"https://{word}@o1.ingest.sentry.io/2", word
    word = maker.word(16)
    yield "odbc", f"Server=db;Uid=me;Pwd={word};Port=1", word


def _named(maker: Maker) -> Made:
    around = ('{} = "{}"', "{}={}", "{}: {}", '{{"{}": "{}"}}', 'os.environ["{}"] = "{}"', "--{}={}", "--{} {}")
    for number, name in enumerate(_NAMES.split()):
        word = maker.word(10 + number % 7)
        yield f"named-{name}", around[number % len(around)].format(name, word), word
    pin = maker.digits(6)
    yield "pin", f"pin = {pin}", pin


def _spoken(maker: Maker) -> Made:
    for name, text in (
        ("bearer", "Authorization: Bearer {}"),
        ("basic", "{{'Authorization': 'Basic {}'}}"),
        ("header-key", "x-api-key: {}"),
        ("cookie", "Cookie: a=1; session={}"),
        ("set-cookie", "Set-Cookie: sid={}; Path=/"),
        ("netrc", "machine api.wandb.ai login user password {}"),
        ("curl", "curl -u me:{} https://example.org"),
        ("sshpass", "sshpass -p {} ssh host"),
        ("wandb-login", "wandb login {}"),
        ("sql", "ALTER USER me IDENTIFIED BY '{}'"),
        ("xml", "<password>{}</password>"),
        ("sentence", "wrong login: the password is {}"),
        ("setdefault", "os.environ.setdefault('HF_TOKEN', '{}')"),
        ("getenv", "os.getenv('API_KEY', '{}')"),
        ("login-call", "wandb.login(key='{}')"),
        ("annotated", "token: str = '{}'"),
        ("tuple", "auth=('me', '{}')"),
    ):
        word = maker.word(20)
        yield name, text.format(word), word


def _jwt(maker: Maker) -> str:
    head, body = (json.dumps(part).encode() for part in ({"alg": "HS256"}, {"sub": maker.word(20)}))
    parts = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in (head, body)]
    return ".".join([*parts, maker.word(43, URL_SAFE)])

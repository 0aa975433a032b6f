"""The shapes of secrets, prefixes and forms that vendors document for their keys, tokens and webhooks.

Each row has a kind, words of which the text must contain one (a quick test before the pattern runs), and a pattern
whose first group, or else whose whole match, is the secret. Every pattern starts at a literal and is bounded, or
consumes what it has read, so a megabyte takes linear time. What has no shape is found by its name or by its entropy, in
``redaction``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_START = r"(?<![A-Za-z0-9])"
_WORD = r"[A-Za-z0-9_-]"
_HEX = r"[0-9a-fA-F]"
_OPEN_PREFIXES = {
    "huggingface-token": "hf_ api_org_",
    "openai-key": "sk- sess-",
    "anthropic-key": "sk-ant-",
    "groq-key": "gsk_",
    "replicate-token": "r8_",
    "perplexity-key": "pplx-",
    "xai-key": "xai-",
    "together-key": "tgp_v1_",
    "fireworks-key": "fw_",
    "nvidia-key": "nvapi-",
    "langsmith-key": "lsv2_pt_ lsv2_sk_ ls__",
    "langfuse-key": "pk-lf-",
    "pinecone-key": "pcsk_",
    "wandb-key": "wandb_v1_",
    "kaggle-token": "KGAT_",
    "runpod-key": "rpa_",
    "modal-token": "ak- as-",
    "prefect-key": "pnu_ pnb_",
    "github-token": "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_",
    "gitlab-token": "glpat- gldt- glrt- glcbt- glptt- glft- glimt- glagent- glsoat- glffct- gloas- GR1348941",
    "atlassian-token": "ATATT3 ATCTT3 ATBB BBDC-",
    "slack-token": "xoxa- xoxb- xoxc- xoxd- xoxe- xoxo- xoxp- xoxr- xoxs- xoxe.xoxp- xoxe.xoxb- xapp-",
    "stripe-key": "sk_live_ sk_test_ rk_live_ rk_test_ pk_live_ pk_test_ whsec_",
    "npm-token": "npm_",
    "pypi-token": "pypi-",
    "rubygems-key": "rubygems_",
    "crates-token": "cio",
    "nuget-key": "oy2",
    "docker-token": "dckr_pat_ dckr_oat_",
    "artifactory-token": "AKCp cmVmd",
    "databricks-token": "dapi dose",
    "digitalocean-token": "dop_v1_ doo_v1_ dor_v1_",
    "heroku-key": "HRKU-",
    "netlify-token": "nfp_ nfc_ nfo_",
    "vercel-token": "vcp_ vci_ vca_ vcr_ vck_",
    "fly-token": "fm1_ fm2_ fo1_",
    "planetscale-token": "pscale_tkn_ pscale_pw_ pscale_oauth_",
    "supabase-key": "sbp_ sb_secret_",
    "neon-key": "napi_",
    "vault-token": "hvs. hvb. hvr.",
    "doppler-token": "dp.pt. dp.st. dp.sa. dp.ct. dp.scim. dp.audit.",
    "pulumi-token": "pul-",
    "onepassword-token": "ops_eyJ",
    "grafana-token": "glsa_ glc_",
    "sentry-token": "sntrys_ sntryu_",
    "newrelic-key": "NRAK- NRII- NRJS- NRSP-",
    "dynatrace-token": "dt0c01. dt0s01.",
    "postman-key": "PMAK- PMAT-",
    "linear-key": "lin_api_ lin_oauth_",
    "notion-token": "ntn_ secret_",
    "figma-token": "figd_ figu_",
    "contentful-token": "CFPAT-",
    "typeform-token": "tfp_",
    "readme-key": "rdme_",
    "shopify-token": "shpat_ shpca_ shppa_ shpss_",
    "square-token": "sq0atp- sq0csp- sq0idp- EAAAE EAAAl",
    "sendinblue-key": "xkeysib- xsmtpsib-",
    "mailgun-key": "key-",
    "easypost-key": "EZAK EZTK",
    "flutterwave-key": "FLWSECK- FLWSECK_TEST-",
    "dropbox-token": "sl.",
    "facebook-token": "EAAC EAAG EAAB",
    "google-token": "ya29. 1//0 GOCSPX-",
    "alibaba-key": "LTAI",
    "tencent-key": "AKID",
    "yandex-token": "t1. y0_ AQVN YCAJ",
    "adobe-key": "p8e-",
    "lob-key": "live_ test_",
    "zapier-token": "zpka_",
    "tailscale-key": "tskey-",
    "clerk-key": "sk_clerk_",
    "resend-key": "re_",
    "snyk-token": "snyk_",
    "buildkite-token": "bkua_ bkct_",
    "circleci-token": "CCIPAT_ CCIPRJ_",
    "cloudflare-token": "v1.0- cfut_ cfat_",
    "hubspot-token": "pat-na1- pat-eu1-",
    "openssh-key": "AGE-SECRET-KEY-1",
    "neptune-token": "eyJhcGlfYWRkcmVzcyI6",
    "grafana-key": "eyJrIjoi",
}
"""Vendors whose secrets are a literal and then many letters and digits."""

_BODY_MIN = 16
_LOOSE = ("cio", "oy2", "key-", "ak-", "as-", "re_", "live_", "test_", "fw_", "r8_", "sl.", "t1.", "y0_", "secret_")
"""Prefixes that also start ordinary words: what follows must be longer and look random."""
_LOOSE_MIN = 24


@dataclass(frozen=True)
class Shape:
    kind: str
    hints: tuple[str, ...]
    expression: str
    loose: bool = False

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when a hint was found: most texts have none, and all shapes together take as long as an import."""
        return re.compile(self.expression)

    def found(self, text: str) -> bool:
        for hint in self.hints:  # noqa: SIM110 - any() takes three times as long, for every text and shape
            if hint in text:
                return True
        return False


def _row(kind: str, hints: str, expression: str) -> Shape:
    return Shape(kind, tuple(hints.split()), expression)


def _prefixed() -> Iterator[Shape]:
    for kind, prefixes in _OPEN_PREFIXES.items():
        for loose in (False, True):
            chosen = tuple(one for one in prefixes.split() if (one in _LOOSE) == loose)
            if chosen:
                heads = "|".join(re.escape(one) for one in sorted(chosen, key=len, reverse=True))
                body = rf"[A-Za-z0-9_.~+/-]{{{_LOOSE_MIN if loose else _BODY_MIN},400}}={{0,2}}"
                yield Shape(kind, chosen, rf"{_START}(?:{heads}){body}", loose)


SHAPES = (
    _row("aws-key", "A3T AKIA ASIA ABIA ACCA AROA AIDA AGPA ANPA ANVA APKA",
        rf"{_START}A(?:3T|[KS]IA|BIA|CCA|ROA|IDA|GPA|NPA|NVA|PKA)[A-Z0-9]{{16,20}}(?![A-Za-z0-9])"),
    _row("replicate-token", "r8_", rf"{_START}r8_[A-Za-z0-9]{{37}}(?![A-Za-z0-9_])"),
    _row("google-key", "AIza", rf"{_START}AIza{_WORD}{{30,45}}"),
    _row("azure-secret", "Q~", rf"{_START}[A-Za-z0-9_~.-]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,34}}"),
    _row("azure-key", "==", r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{86}=="),
    _row("azure-signature", "sig=", r"(?<=[?&;]sig=)([^&\s'\"#]{16,200})"),
    _row("azure-key", "Key= Signature=",
        r"(?:AccountKey|SharedAccessKey|SharedAccessSignature|SharedSecretValue)=([^;\s'\"]{8,400})"),
    _row("slack-webhook", "hooks.slack.com",
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9_/+-]{12,200})"),
    _row("discord-webhook", "/api/webhooks/ /api/v",
        r"discord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/([0-9]{5,25}/[A-Za-z0-9_-]{20,120})"),
    _row("teams-webhook", "webhook",
        r"(?:webhook\.office\.com|logic\.azure\.com|office365\.com)[:\d]{0,6}/(?:webhookb?2?|workflows)/"
            r"([^\s'\"]{16,400})"),
    _row("google-webhook", "chat.googleapis.com", r"chat\.googleapis\.com/v1/spaces/([^\s'\"]{16,400})"),
    _row("zapier-webhook", "hooks.zapier.com", r"hooks\.zapier\.com/hooks/catch/([A-Za-z0-9/]{6,80})"),
    _row("ifttt-webhook", "maker.ifttt.com",
        r"maker\.ifttt\.com/trigger/[^\s'\"]{1,99}/with/key/([A-Za-z0-9_-]{10,80})"),
    _row("feishu-webhook", "/bot/v2/hook/", r"/bot/v2/hook/([A-Za-z0-9-]{16,60})"),
    _row("dingtalk-webhook", "oapi.dingtalk.com qyapi.weixin", r"(?:access_token|[?&]key)=([A-Za-z0-9-]{16,100})"),
    _row("discord-token", ".", rf"{_START}[MNO][A-Za-z0-9_-]{{22,27}}\.[A-Za-z0-9_-]{{6,7}}\.[A-Za-z0-9_-]{{27,45}}"),
    _row("sendgrid-key", "SG.", rf"{_START}SG\.{_WORD}{{16,32}}\.{_WORD}{{32,64}}"),
    _row("twilio-key", "SK AC", rf"{_START}(?:SK|AC){_HEX}{{32}}(?!{_HEX})"),
    _row("mailchimp-key", "-us", rf"{_START}{_HEX}{{32}}-us\d{{1,2}}"),
    _row("telegram-token", ":", rf"{_START}[0-9]{{8,10}}:{_WORD}{{35}}(?![A-Za-z0-9])"),
    _row("terraform-token", ".atlasv1.", rf"{_START}{_WORD}{{14}}\.atlasv1\.{_WORD}{{40,80}}"),
    _row("airtable-token", "pat", rf"{_START}pat[A-Za-z0-9]{{14}}\.{_HEX}{{64}}"),
    _row("plaid-token", "access-",
        rf"{_START}access-(?:sandbox|development|production)-{_HEX}{{8}}-[0-9a-fA-F-]{{27}}"),
    _row("mapbox-token", "sk.eyJ pk.eyJ tk.eyJ", rf"{_START}[spt]k\.eyJ{_WORD}{{10,400}}\.{_WORD}{{10,100}}"),
    _row("jwt", "eyJ",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{10,2000}\.[A-Za-z0-9_-]{10,4000}(?:\.[A-Za-z0-9_-]{0,2000}){1,3}"),
    _row("jwt", "eyJ", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{40,4000}={0,2}"),
    _row("dsn-key", "ingest", r"://([0-9a-f]{32})@"),
    _row("wandb-key", "wandb", r"wandb[^\n]{0,60}?[\s=:'\"(]((?:local-)?[0-9a-f]{40})(?![0-9a-f])"),
    _row("wandb-key", "local-", rf"{_START}local-[0-9a-f]{{40}}"),
    *_prefixed(),
)  # fmt: skip

PRIVATE_KEY = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY"
    r"(?: BLOCK)?-----|\Z)|"
    r"PuTTY-User-Key-File-\d.*?(?:Private-MAC:[^\n]*|\Z)",
    re.DOTALL,
)
"""To its end, or to the end of the text if it was cut off."""

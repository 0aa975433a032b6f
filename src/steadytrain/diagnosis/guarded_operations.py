"""The code that keeps an operation inside its domain, for the operation that was found."""

from __future__ import annotations

import re
from collections.abc import Mapping

from steadytrain.core.incident import Located

FORMS: Mapping[str, str] = {
    "log": "torch.log(x.clamp(min=1e-6)), or the form that takes scores: log_softmax, logsigmoid, ..._with_logits",
    "sqrt": "torch.sqrt(x.clamp(min=1e-12)): the derivative at 0 is infinite, too",
    "div": "a / b.clamp(min=1e-6), or leave out what divides by 0",
    "reciprocal": "1 / x.clamp(min=1e-6)",
    "rsqrt": "torch.rsqrt(x.clamp(min=1e-12))",
    "norm": "torch.sqrt(x.square().sum(-1).clamp(min=1e-12)): the derivative of a norm at 0 is not defined",
    "std": "x.std(correction=0).clamp(min=1e-6): of one value, or of equal ones, there is none to divide by",
    "exp": "torch.exp(x.clamp(max=80)), or work with logarithms (logsumexp)",
    "i0": "torch.special.i0e(x).log() + x.abs() in place of i0(x).log(): i0(x) overflows above 88",
    "i1": "torch.special.i1e(x) / torch.special.i0e(x) in place of i1(x) / i0(x): both overflow above 88",
    "cosh": "logarithms: x.abs() + torch.nn.functional.softplus(-2 * x.abs()) - log(2) is log(cosh(x))",
    "sinh": "x.clamp(-80, 80).sinh(), or work with logarithms",
    "erfcx": "x.clamp(min=-9).erfcx(), or torch.special.log_ndtr in place of the logarithm of a tail",
    "lgamma": "torch.lgamma(x.clamp(min=1e-6)): it has poles at 0, -1, -2, ...",
    "digamma": "torch.digamma(x.clamp(min=1e-6)): it has poles at 0, -1, -2, ...",
    "ndtri": "torch.special.ndtri(p.clamp(1e-6, 1 - 1e-6)): it is infinite at 0 and 1",
    "pow": "x.clamp(min=1e-6) ** p: a power below 1 has an infinite derivative at 0, a negative one is infinite there",
    "svd": "detach the factors if only they are needed, or separate the singular values: svd(x + 1e-4 * noise)",
    "eigh": "detach the eigenvectors, or separate the eigenvalues: eigh(x + torch.diag_embed(1e-4 * distinct numbers))",
    "qr": "qr(x + 1e-4 * noise), or leave out a matrix whose columns depend on each other",
    "cholesky": "cholesky(x + 1e-4 * torch.eye(n)): the smallest eigenvalue must stay above 0",
    "inv": "torch.linalg.solve(x + 1e-4 * torch.eye(n), y), or pinv: a singular matrix has no inverse",
    "slogdet": "slogdet(x + 1e-4 * torch.eye(n)): the determinant of a singular matrix is 0",
    "acos": "torch.acos(x.clamp(-1 + 1e-6, 1 - 1e-6))",
    "asin": "torch.asin(x.clamp(-1 + 1e-6, 1 - 1e-6))",
}
_CALL = re.compile(r"([A-Za-z_]\w*)\s*\(")

_DECOMPOSING = re.compile(r"([A-Za-z_]\w*\.)?([A-Za-z_]\w*)\s*\(")

_COMMON = frozenset(("inv", "inverse", "solve", "det", "qr", "lstsq"))
"""Names that other objects have as well, a scaler or a flow: they count as functions of torch alone."""

_SINGULAR_BESIDE = frozenset(("log", "sqrt", "rsqrt", "norm", "std", "pow", "acos", "asin"))
"""Operations whose derivative alone may be infinite. That of a division is not where the division itself is finite."""

_ALIKE: Mapping[str, str] = {
    **dict.fromkeys(("log2", "log10", "log1p"), "log"),
    **dict.fromkeys(("linalg_vector_norm", "cdist", "_cdist_forward", "_euclidean_dist"), "norm"),
    **dict.fromkeys(("var", "std_mean", "var_mean"), "std"),
    **dict.fromkeys(("expm1", "exp2"), "exp"),
    **{f"special_{name}": name for name in ("i0", "i1", "erfcx", "ndtri")},
    **dict.fromkeys(("polygamma", "special_zeta"), "digamma"),
    "mvlgamma": "lgamma",
}


DECOMPOSED: Mapping[str, tuple[frozenset[str], str]] = {
    "svd": (
        frozenset(("svd", "svd_lowrank", "pca_lowrank")),
        "divides by the differences of the squared singular values: the matrix has equal singular values, or zeros",
    ),
    "eigh": (
        frozenset(("eigh", "eig", "symeig", "lobpcg")),
        "divides by the differences of the eigenvalues: the matrix has equal eigenvalues",
    ),
    "qr": (frozenset(("qr", "householder_product")), "divides by the diagonal of R: columns depend on each other"),
    "cholesky": (
        frozenset(("cholesky", "cholesky_ex", "cholesky_solve", "cholesky_inverse", "MultivariateNormal")),
        "divides by the diagonal of the factor: the matrix is singular",
    ),
    "inv": (
        frozenset(("inv", "inv_ex", "inverse", "solve", "lstsq", "solve_triangular", "matrix_power")),
        "solves with the matrix once more: it is singular",
    ),
    "slogdet": (frozenset(("slogdet", "logdet", "det")), "is the inverse of the matrix: it is singular"),
}
"""By form: the functions that decompose a matrix, and where their derivative is undefined, as torch documents it."""


_DERIVATIVES: Mapping[str, tuple[str, ...]] = {
    "div": ("log", "sqrt", "norm", "std", "div"),
    "rsqrt": ("acos", "asin", "rsqrt"),
    "pow": ("pow", "rsqrt"),
    "log": ("pow",),
    "mul": ("erfcx",),
}
"""Whose derivative an operation of the backward computes."""


def guarded(located: Located | None) -> str:
    """Code for the operation that was located, with its line; "" for one that has no such form. For a derivative it is
    that of the operation of the forward line, as far as the line shows only one that has it."""
    if located is None:
        return ""
    name = forward_operation(located) if is_plain_derivative(located) else _bare(located)
    name = decomposition_of(located) or name
    form = FORMS.get(_ALIKE.get(name, name), "")
    place = f"  # {located.file.rpartition('/')[2]}:{located.line}" if located.file and located.line else ""
    return f"{form}{place}" if form else ""


def is_plain_derivative(located: Located) -> bool:
    """Whether the operation is part of a derivative that torch composes of plain operations, such as the division of
    the derivative of ``log``."""
    return located.phase == "backward" and "_backward" not in located.operation


def decomposition_of(located: Located) -> str:
    """Which kind of :data:`DECOMPOSED` the line calls whose derivative holds the operation; "" for none or several, and
    where the line calls something else that has a singular derivative, such as a root."""
    code = (located.code or "").partition("#")[0]
    if located.phase != "backward" or _written(code) & _SINGULAR_BESIDE:
        return ""
    called = {name for of, name in _DECOMPOSING.findall(code) if name not in _COMMON or of in ("torch.", "linalg.")}
    kinds = [kind for kind, (names, _) in DECOMPOSED.items() if called & names]
    return kinds[0] if len(kinds) == 1 else ""


def forward_operation(located: Located) -> str:
    """The operation of the forward line whose derivative holds the one that was located; "" if the line shows none, or
    several."""
    name = _bare(located)
    written = _written(located.code or "") & set(_DERIVATIVES.get(_ALIKE.get(name, name), (name,)))
    return written.pop() if len(written) == 1 else ""


def _bare(located: Located) -> str:
    name = located.operation.removeprefix("aten.").partition(".")[0]
    return re.sub(r"_backward\d*$|^_?foreach_|_$", "", name)


def _written(code: str) -> set[str]:
    """The operations with a guarded form that a line of the script calls or writes as an operator."""
    code = code.partition("#")[0]
    called = {_ALIKE.get(name, name) for name in _CALL.findall(code)}
    operators = {name for name, sign in (("pow", r"\*\*"), ("div", r"(?<!/)/(?!/)")) if re.search(sign, code)}
    return (called | operators) & set(FORMS)

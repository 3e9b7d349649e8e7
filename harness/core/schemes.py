"""Read schemes: how a model was quantized, the part of a target behind the slash, words joined by `+`.

`int8/per-tensor+asymmetric+entropy` is one INT8. The words are the same
for every backend, so that rows can be compared; each backend's capabilities list the words that it offers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import groupby

from shootout.core.contract import Device, Precision, Target
from shootout.core.errors import UsageError, unknown

PATTERNS = {
    "granularity": r"per-channel|per-tensor",
    "symmetry": r"symmetric|asymmetric",
    "ranges": r"minmax|entropy|percentile",
    "samples": r"samples-[1-9]\d*",
    "activations": r"activations-8|weights-only",
    "rest": r"rest-(?:fp32|fp16|bf16)",
    "method": r"awq|gptq|hqq|k-quant|smoothquant",
    "scales": r"scale-estimation",
    "ratio": r"ratio-0\.\d+",
    "search": r"accuracy-control",
    "floats": r"float-\d+(?:to\d+)?(?:\.\d+(?:to\d+)?)*",
    "shapes": r"dynamic|bucket-[1-9]\d*",
    "variant": r"shared",
}
"""The families of words, at most one of each. `symmetry` is that of the activations (of the weights if activations stay
float), `granularity` the weights', `activations` whether products round theirs at run time. `rest` is what computes the
parts that aren't quantized, `floats` names layers that are not to be. `method`, `scales` and `ratio` are quantizers'
own ways of choosing weights, by their vendors' names. `shapes` is how sizes that vary are run; without a word each size
has a session.
"""
RANGED = frozenset(("granularity", "ranges", "samples", "method", "search", "own"))
"""The families without a meaning beside `weights-only`: they are about activations' ranges, or static INT8."""
GIVEN = frozenset((*PATTERNS, "own")) - {"rest", "variant", "shapes"}
"""The families without a meaning for a model that comes quantized."""
WORDS = (
    *("per-channel", "per-tensor", "symmetric", "asymmetric", "minmax", "entropy", "percentile", "samples-N"),
    *("activations-8", "weights-only", "rest-fp32", "rest-fp16", "rest-bf16"),
    *("awq", "gptq", "hqq", "k-quant", "smoothquant", "scale-estimation", "ratio-0.N"),
    *("dynamic", "bucket-N", "shared", "accuracy-control", "float-N"),
)
"""The words that people may write; N is a number. The pages tell what each does."""
MOST_DIGITS = 5
"""Digits of a layer's number: no model has a million."""
SHARED = "shared+"
"""The beginning of an offered word that only the shared file has: the backend has no quantizer of its own."""
SHOWN_AS = {
    "int4/activations-8": "int4-activations-8",
    "int8/weights-only": "int8-weights",
    "fp16/weights-only": "fp16-weights",
}
"""The name of a product that is quantized so; others have their precision's name up to the hyphen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Hold a scheme's words by family, "" if none was given: the backend's own choice.

    Attributes:
        samples: calibration sets to use, the first ones; None: all.
        activations: whether products round theirs at run time: `activations-8` beside weights of fewer bits, or not at
            all (`weights-only`).
        rest: what the layers that aren't quantized compute in; see `rest_of`.
        ratio: the share of the weights that get the label's bits, the rest getting more.
        shapes: how sizes that vary are run; see `is_dynamic` and `bucket`.
        search: how the layers to quantize are chosen by a labeled split, by the backend's own quantizer.
        floats: the numbers of the layers that stay in float (`models.onnx.layers`), ascending.
        variant: what was done to the model before any backend saw it; see `is_quantized`.
        own: a word that only this backend has.
    """

    granularity: str = ""
    symmetry: str = ""
    ranges: str = ""
    samples: int | None = None
    activations: str = ""
    rest: str = ""
    method: str = ""
    scales: str = ""
    ratio: float | None = None
    search: str = ""
    floats: tuple[int, ...] = ()
    shapes: str = ""
    variant: str = ""
    own: str = ""

    @property
    def is_quantized(self) -> bool:
        """Return whether the exported model's ONNX file already is the quantized model, which the backend only has to
        run.
        """
        return bool(self.variant)

    @property
    def made(self) -> str:
        """Return the words of what is done to the model before any backend sees it, as a request's variant has them."""
        return "+".join(filter(None, [self.variant, write_floats(self.floats)])) if self.variant else ""

    @property
    def is_dynamic(self) -> bool:
        """Return whether one session takes all sizes."""
        return self.shapes == "dynamic"

    @property
    def bucket(self) -> int | None:
        """Return to a multiple of what varying inputs are padded; None if they aren't."""
        return int(self.shapes.removeprefix("bucket-")) if self.shapes.startswith("bucket-") else None

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that were given."""
        samples = "" if self.samples is None else f"samples-{self.samples}"
        ratio = "" if self.ratio is None else f"ratio-{self.ratio}"
        ranges = (self.granularity, self.symmetry, self.ranges, samples)
        chosen = (self.activations, self.rest, self.method, self.scales, ratio, self.search, write_floats(self.floats))
        return tuple(word for word in (*ranges, *chosen, self.shapes, self.variant, self.own) if word)

    def for_probe(self) -> Scheme:
        """Adapt the scheme to a probe's own model, which has one layer, no labels and few samples.

        A method that looks for the best scales would give each group its own, and change the levels that the probe
        counts.
        """
        return replace(self, samples=None, search="", method="", scales="", ratio=None, floats=(), shapes="")


def parse(text: str, own: Iterable[str] = ()) -> Scheme:
    """Read a scheme.

    Args:
        text: words joined by `+`; "" is the plain scheme.
        own: the backend's words beside the common ones.

    Raises:
        UsageError: an unknown word, with the nearest one; two words of one family; or a word that would change nothing
            beside another one.
    """
    found: dict[str, str] = {}
    for word in text.split("+") if text else []:
        family = _family_of(word, frozenset(own))
        if family in found:
            raise UsageError(f"scheme {text!r}: {found[family]!r} and {word!r} exclude each other: name one")
        found[family] = word
    if found.get("activations") == "weights-only":
        _require_effect(text, found, RANGED, "weights-only leaves activations float")
    if "variant" in found:
        _require_effect(text, found, GIVEN - {"floats"}, "shared comes quantized, the same for every backend")
    samples, ratio = (found.pop(family, "").rpartition("-")[2] for family in ("samples", "ratio"))
    floats = _read_floats(found.pop("floats", ""))
    own_ratio = float(ratio) if ratio else None
    return Scheme(samples=int(samples) if samples else None, ratio=own_ratio, floats=floats, **found)


def write_floats(numbers: Iterable[int]) -> str:
    """Write the word that leaves these layers in float: `float-0to4.17`; "" for none."""
    parts = list[str]()
    for _, run in groupby(enumerate(sorted(set(numbers))), key=lambda one: one[1] - one[0]):
        ends = [number for _, number in run]
        parts += [f"{ends[0]}to{ends[-1]}"] if len(ends) > 2 else map(str, ends)
    return f"float-{'.'.join(parts)}" if parts else ""


def _read_floats(word: str) -> tuple[int, ...]:
    """Return the numbers in a word of layers that stay in float.

    Raises:
        UsageError: they aren't ascending: two words for one choice would be two rows, and two builds.
    """
    numbers = list[int]()
    for part in word.removeprefix("float-").split(".") if word else ():
        first, _, last = part.partition("to")
        if len(last or first) > MOST_DIGITS or int(last or first) < int(first):
            raise UsageError(f"scheme {word!r}: {part!r} is no range of layers, as in float-0to4")
        numbers += range(int(first), int(last or first) + 1)
    if word and (wanted := write_floats(numbers)) != word:
        raise UsageError(f"scheme {word!r}: name each layer once, in order, runs of three or more as a range: {wanted}")
    return tuple(numbers)


def without_shapes(text: str) -> str:
    """Return a scheme's text without its word on varying sizes, which says nothing of the model."""
    return "+".join(word for word in text.split("+") if not re.fullmatch(PATTERNS["shapes"], word))


def unoffered(scheme: Scheme, offered: Iterable[str]) -> str | None:
    """Return the first word that is not among `offered` (which may end in `*`, or begin with `shared+`); None if all
    are.

    Every backend takes padded inputs. Which takes open shapes is said elsewhere (`Capabilities.opens`).
    """
    known = [*(one.removeprefix(SHARED) if scheme.is_quantized else one for one in offered)]
    known += ["bucket-*", "dynamic"]
    return next((word for word in scheme.words if not any(fnmatchcase(word, one) for one in known)), None)


def promised(precision: str, scheme: str) -> str:
    """Return the precision and, behind a slash, the word on activations, if the scheme has one."""
    words = (word for word in scheme.split("+") if re.fullmatch(PATTERNS["activations"], word))
    return "/".join((precision, *words))


def shown_as(precision: str, scheme: str = "") -> str:
    """Name an arm's products in the accounts of what ran, and in the grid probe's answer."""
    return SHOWN_AS.get(promised(precision, scheme), precision.partition("-")[0])


def is_scaled(precision: str) -> bool:
    """Return whether a product's precision, as accounts name it, is a quantizer's: integers or FP8."""
    return precision.startswith(("int", "fp8"))


def rest_of(target: Target) -> Precision:
    """Return what a static INT8 target computes in if a part isn't quantized.

    That is its word's precision, else FP16 on a GPU, as people ship INT8 there, and FP32 on a CPU.
    """
    word = next((word for word in target.scheme.split("+") if re.fullmatch(PATTERNS["rest"], word)), "")
    if word:
        return Precision(word.removeprefix("rest-"))
    return Precision.FP16 if target.device is Device.CUDA else Precision.FP32


def _require_effect(text: str, found: Mapping[str, str], needless: frozenset[str], why: str) -> None:
    """Refuse words of families that another word leaves nothing to choose for."""
    if words := " and ".join(found[family] for family in sorted(needless & found.keys())):
        raise UsageError(f"scheme {text!r}: {why}, so {words} would mean nothing: leave it out")


def _family_of(word: str, own: frozenset[str]) -> str:
    for family, pattern in PATTERNS.items():
        if re.fullmatch(pattern, word):
            return family
    if word in own:
        return "own"
    if word.startswith("bucket-"):
        raise UsageError(f"scheme {word!r}: inputs are padded to a multiple of a whole number above 0, as in bucket-32")
    raise unknown("scheme", word, {*WORDS, *(name for name in own if "*" not in name)})


FULL = (Precision.FP32, Precision.NATIVE)


def is_exact(precision: str, scheme: str, file: str) -> bool:
    """Return whether this is the model as it was given: in full precision, without a scheme, from the first file."""
    return precision in FULL and not without_shapes(scheme) and not file

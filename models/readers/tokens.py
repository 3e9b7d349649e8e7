"""Turn texts into token ids by the tokenizer in a model's folder, cut at the model's length.

`tokenizers` reads tokenizer.json. Of other files, transformers makes the same kind of tokenizer. Nothing is downloaded,
and no code of the folder runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError, explained, shorten
from shootout.models.data.text_folder import TextFolder

FAST = "tokenizer.json"
OTHERS = ("tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")
"""Files of which transformers may make a tokenizer; the folder of the first one is the tokenizer's."""
SAVE = "save it there: AutoTokenizer.from_pretrained(…).save_pretrained(folder)"
IDS, MASK, TYPES, POSITIONS = "input_ids", "attention_mask", "token_type_ids", "position_ids"
"""The inputs that a model may take of texts, each (rows, tokens)."""
PARALLELISM = "TOKENIZERS_PARALLELISM"
"""No threads are left behind in a process that starts others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Hold texts as tokens.

    Attributes:
        ids, types: of each text, special tokens included, without padding.
        pad: the id of padding.
        pads_left: padding comes before the tokens.
        cut: how many texts were longer than the model takes.
        longest: the most tokens that a text may have; None without a limit.
        told: the tokenizer, for people.
    """

    ids: Sequence[Sequence[int]]
    types: Sequence[Sequence[int]]
    pad: int
    pads_left: bool
    cut: int
    longest: int | None
    told: str

    @property
    def lengths(self) -> list[int]:
        """Return the tokens of each text."""
        return [len(ids) for ids in self.ids]

    def fill(self, name: str, size: int, dtype: str) -> Array:
        """Return an input of all texts, (texts, size), padded."""
        length = np.array(self.lengths)[:, None]
        places = np.arange(size) - (size - length if self.pads_left else 0)
        is_token = (places >= 0) & (places < length)
        if name == MASK:
            return is_token.astype(dtype)
        if name == POSITIONS:
            return np.where(is_token, places, 0).astype(dtype)
        found = np.full(is_token.shape, self.pad if name == IDS else 0, dtype)
        found[is_token] = np.concatenate(list(map(np.asarray, self.ids if name == IDS else self.types)))
        return found

    def tell(self) -> str:
        """Tell of the lengths, such as `3 to 48 tokens, median 12; 4 texts cut at 48`."""
        lengths = self.lengths
        told = f"{min(lengths)} to {max(lengths)} tokens, median {median(lengths):g}"
        return f"{told}; {self.cut} of them cut at {self.longest}" if self.cut else told


def tokenize(folder: TextFolder, texts: Sequence[str], most: int | None) -> Tokens:
    """Return texts as tokens, by the tokenizer that is beside a model.

    Args:
        most: the tokens that the model's inputs have room for; None: any number.

    Raises:
        UsageError: there is no tokenizer, it can't be read, it makes nothing of a text, or a package is missing.
    """
    tokenizer, told = _open_tokenizer(folder)
    longest = min((one for one in (folder.find_longest(), most) if one), default=None)
    padding: Mapping[str, Any] = tokenizer.padding or {}
    config = folder.read("tokenizer_config.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if longest:
        side = str(config.get("truncation_side", "right"))
        try:
            tokenizer.enable_truncation(longest, direction=side)
        except Exception as error:
            raise UsageError(f"{told} can't cut texts at {longest} tokens: {explained(error)}") from error
    lowers = folder.read_sentence().get("do_lower_case")
    prompt = folder.find_prompt()
    with _single_threaded():
        found = tokenizer.encode_batch([prompt + (one.lower() if lowers else one) for one in texts])
    if (empty := next((row for row, one in enumerate(found) if not one.ids), None)) is not None:
        raise UsageError(f"{told} makes no tokens of {shorten(texts[empty])!r} in row {empty}: leave this text out")
    return Tokens(
        ids=[one.ids for one in found],
        types=[one.type_ids for one in found],
        pad=_find_pad(folder, tokenizer, config, padding),
        pads_left=(config.get("padding_side") or padding.get("direction")) == "left",
        cut=sum(bool(one.overflowing) for one in found),
        longest=longest,
        told=f"{told}, each behind the folder's prompt {prompt!r}" if prompt else told,
    )


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Keep `tokenizers` to one thread, unless the user's environment says something else."""
    if PARALLELISM in os.environ:
        yield
        return
    os.environ[PARALLELISM] = "false"
    try:
        yield
    finally:
        del os.environ[PARALLELISM]


def _find_pad(folder: TextFolder, tokenizer: Any, config: Mapping[str, Any], padding: Mapping[str, Any]) -> int:
    token = config.get("pad_token") or folder.read("special_tokens_map.json").get("pad_token")
    found = tokenizer.token_to_id(str(token.get("content") if isinstance(token, dict) else token)) if token else None
    told = (found, padding.get("pad_id"), folder.read("config.json").get("pad_token_id"))
    return next((int(one) for one in told if isinstance(one, int)), 0)


def _open_tokenizer(folder: TextFolder) -> tuple[Any, str]:
    """Return a tokenizer of `tokenizers`, and its name for people."""
    if path := folder.find(FAST):
        try:
            from tokenizers import Tokenizer
        except ModuleNotFoundError:
            raise UsageError(f"{path} needs tokenizers: python -m pip install tokenizers") from None
        try:
            return Tokenizer.from_file(str(path)), f"{FAST} of {path.parent.name}"
        except Exception as error:  # `tokenizers` raises nothing else
            raise UsageError(f"{path} can't be read as a tokenizer: {explained(error)}; {SAVE}") from error
    place = next((found.parent for name in OTHERS if (found := folder.find(name))), None)
    if place is None:
        places = " or ".join(map(str, folder.places))
        raise UsageError(f"no tokenizer in {places}: expected {FAST}, vocab.txt or another; {SAVE}")
    return _convert(place), f"the tokenizer of {place.name}"


def _convert(place: Path) -> Any:
    try:
        import transformers
        from huggingface_hub import constants
    except ModuleNotFoundError:
        fix = "python -m pip install transformers, or save it as tokenizer.json"
        raise UsageError(f"the tokenizer in {place} needs transformers: {fix}") from None
    auto: Any = transformers.AutoTokenizer
    quiet: Any = transformers.logging
    was_offline, verbosity = constants.HF_HUB_OFFLINE, quiet.get_verbosity()
    constants.HF_HUB_OFFLINE = True  # nothing is downloaded
    quiet.set_verbosity_error()
    try:
        found = auto.from_pretrained(place, local_files_only=True, trust_remote_code=False)
    except Exception as error:
        raise UsageError(f"transformers can't read the tokenizer in {place}: {explained(error)}; {SAVE}") from error
    finally:
        constants.HF_HUB_OFFLINE = was_offline
        quiet.set_verbosity(verbosity)
    fast = getattr(found, "backend_tokenizer", None)
    if fast is None:
        raise UsageError(f"the tokenizer in {place} is {type(found).__name__}, which has no fast form: {SAVE}")
    return fast

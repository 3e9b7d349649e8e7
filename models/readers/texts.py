"""Make rows of texts for a Hugging Face folder, or for an ONNX file with its tokenizer beside it.

The timed call is the network: the tokenizer runs once, here, and a metric pools outputs before it compares them. The
lengths of the texts are handed over as the log of a mix of sizes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from shootout.core.contract import Array
from shootout.core.errors import UsageError, shorten
from shootout.core.exported.request import find_claim
from shootout.core.units import counted
from shootout.models.data.columns import TABLES, names_column, read_column, read_columns, read_lines
from shootout.models.data.data_files import RowFacts, as_column
from shootout.models.data.sized_rows import SIZES
from shootout.models.data.text_folder import CONFIG, TextFolder
from shootout.models.onnx import ONNX_SUFFIX
from shootout.models.readers.reader import Reader, keep_rows
from shootout.models.readers.tokens import IDS, MASK, POSITIONS, TYPES, Tokens, tokenize

LABELS, LENGTHS = "labels.npy", "lengths.txt"
"""Files beside the rows: the class of each, and for texts of several lengths the log of their mix."""
LINES, NO_LINES = ".txt", (".json", ".jsonl")
AXIS = "sequence_length"
"""The parameter of a Hugging Face folder that all its inputs have."""
VARYING = "varying"
ALIKE = 0.05
"""Texts that are padded by no more than this share, all together, count as of one length."""
NO_MASK = f"the model takes no {MASK}, so padding counts as text"
RANKED = (12, 4_096)
"""The rank of neighbors takes no fewer texts, and no more."""
POOLED = "sentence_embedding"
EMBEDDINGS = (POOLED, "token_embeddings", "last_hidden_state")
"""The outputs that hold embeddings, the first that a file has."""
EMBEDDING, ERROR = "embedding", "mae"
"""The metrics of embeddings without labels, and of one score a text."""
TOKEN_HEADS = ("ForTokenClassification", "ForMaskedLM", "ForCausalLM", "ForPreTraining", "LMHeadModel")
"""The ends of the names of models that score each token."""
SEVERAL = "multi_label_classification"


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """Hold what a model takes of texts, and gives.

    Attributes:
        inputs: the type of each, by name.
        axis: what the number of tokens is called where it is open; "" of a fixed one, or of several.
        size: the number of tokens, if it is fixed.
        folder: the files beside it.
        embedding: the output that holds embeddings; "" for the first one.
        metric: what compares its outputs with those in FP32, for texts without labels; "" if only a user can name it.
    """

    inputs: Mapping[str, str]
    axis: str
    folder: TextFolder
    metric: str
    embedding: str = ""
    size: int | None = None


class Texts(Reader):
    """A file with a text in each line, or a column of a table."""

    option = "texts"

    def read(self, model: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the texts' rows, their mix of lengths, and what scores them; see `Reader.read`."""
        if "mix" in given:
            raise UsageError("--mix and --texts both say which sizes calls have: pass only one of them")
        word = str(given["texts"])
        texts = read_texts(word)
        network = open_model(model)
        labels = read_labels(str(given["labels"]), network.folder, len(texts)) if "labels" in given else None
        size = _find_size(network, given)
        scored = _find_scores(network, len(texts), given)
        found = _pad(network, tokenize(network.folder, texts, size))
        size = size or (None if _may_mix(network, found, given) else max(found.lengths))
        name = Path(word.rpartition(":")[0] if names_column(word) else word).name
        notes = (
            f"{counted(len(texts), 'text')} of {name} by {found.told}: {found.tell()}",
            *_tell_scope(scored.get("metric", "")),
            *((NO_MASK,) if MASK not in network.inputs and len({*found.lengths, size}) > 1 else ()),
        )
        facts = RowFacts(told=f"{name}, tokenized", notes=notes)
        stored = f"{Path(name).stem}.npz"  # by which screens call it
        folder = _keep(network, found, size, labels, facts, stored)
        fields: dict[str, Any] = {"inputs": str(folder / stored), **scored}
        if labels is not None:
            fields["labels"] = str(folder / LABELS)
        if size is None:
            fields["mix"] = f"{network.axis}={folder / LENGTHS}"
        elif not model.endswith(ONNX_SUFFIX):  # of a file the rows tell it
            fields["parameters"] = {**(given.get("parameters") or {}), AXIS: size}
        return fields


def read_texts(word: str) -> list[str]:
    """Return the texts of a file, one a line, or of the column that FILE:COLUMN names.

    Raises:
        UsageError: it can't be read, or holds something else than texts.
    """
    if not names_column(word):
        if (path := Path(word).expanduser()).suffix.lower() in TABLES:
            columns = ", ".join(read_columns(path))
            raise UsageError(f"--texts {word} is a table: name a column, as in {word}:COLUMN; it has {columns}")
        if path.suffix.lower() in NO_LINES:
            raise UsageError(
                f"--texts {word} is JSON: give lines of text, or a column of a table, as in t.parquet:text"
            )
        return read_lines(path)
    column = read_column(word)
    odd = next((row for row, one in enumerate(column) if not isinstance(one, str)), None)
    if odd is not None:
        got = "nothing" if column[odd] is None else shorten(str(column[odd]))
        raise UsageError(f"--texts {word}: expected a text in each row, got {got} in row {odd}; name another column")
    if not len(column):
        raise UsageError(f"--texts {word}: the table has no rows")
    return list(column)


def read_labels(word: str, folder: TextFolder, count: int) -> Array | None:
    """Return the class of each text, by number; None if the option names a file that is read as it is.

    Args:
        folder: its config.json has the names of the classes.
        count: of the texts.

    Raises:
        UsageError: they can't be read, a name or number isn't one of the model's, or there are too many or few.
    """
    if not names_column(word) and Path(word).suffix.lower() != LINES:
        return None
    column = read_column(word) if names_column(word) else as_column(_as_numbers(read_lines(Path(word))))
    if len(column) != count:
        raise UsageError(f"--labels {word}: expected a label for each of the {count:,} texts, got {len(column):,}")
    known = _read_classes(folder)
    if isinstance(column, np.ndarray) and column.dtype.kind in "biu":
        most = max(known.values(), default=None)
        if most is not None and (odd := column[(column < 0) | (column > most)]).size:
            raise UsageError(f"--labels {word}: the model has the classes 0 to {most}, got {odd[0]}")
        return column.astype(np.int64)
    if others := [one for one in column if str(one) not in known]:
        told = f"the model's are {', '.join(known)}" if known else f"no {CONFIG} beside the model names its classes"
        raise UsageError(
            f"--labels {word}: {shorten(str(others[0]))!r} isn't a class; {told}: give these names, or whole numbers"
        )
    return np.array([known[str(one)] for one in column])


def _read_classes(folder: TextFolder) -> dict[str, int]:
    """Return the number of each class by its name, as config.json says."""
    found = folder.read_entry(CONFIG, "label2id")
    if odd := [one for one in found.values() if not isinstance(one, int)]:
        raise UsageError(f"{folder.find(CONFIG)}: expected whole numbers in label2id, got {shorten(str(odd[0]))!r}")
    return found


def _as_numbers(lines: list[str]) -> list[Any]:
    return [*map(int, lines)] if all(one.strip().isdecimal() for one in lines) else [one.strip() for one in lines]


def open_model(word: str) -> TextModel:
    """Return what a model takes of texts.

    Raises:
        UsageError: it takes none, or can't be read.
    """
    source = find_claim(word)
    if word.endswith(ONNX_SUFFIX) and source:
        return _open_file(word, source.outputs(word))
    folder = Path(word).expanduser()
    if not (folder.is_dir() and source):
        raise UsageError(
            f"--texts is for a Hugging Face folder, or for an ONNX file with its tokenizer beside it; got {word}"
        )
    files = TextFolder.of(folder)
    config = files.read(CONFIG)
    if "vocab_size" not in config or config.get("is_encoder_decoder"):
        got = _name_kind(files) or config.get("model_type", "no model of transformers")
        raise UsageError(f"--texts: expected a model of one text's token ids; {word} is {got}")
    inputs = dict.fromkeys((IDS, MASK), "int64")  # as `models.sources.hfconfig` calls it
    return TextModel(inputs=inputs, axis=AXIS, folder=files, metric=_choose_metric(files, "", None))


def _open_file(word: str, outputs: Sequence[str]) -> TextModel:
    from shootout.models.onnx import onnx_axes, onnx_files

    path = Path(word).expanduser().absolute()
    model = onnx_files.header(path)
    shapes = {info.name: info.type.tensor_type.shape.dim for info in onnx_axes.true_inputs(model)}
    are_rows = all(len(shape) == 2 for shape in shapes.values())
    if IDS not in shapes or not {*shapes} <= {IDS, MASK, TYPES, POSITIONS} or not are_rows:
        told = ", ".join(onnx_axes.input_texts(model).values())
        raise UsageError(f"--texts: expected a model of token ids ({IDS}, {MASK}); {word} takes {told}")
    axes = onnx_axes.sizes_of_rows(model, dict.fromkeys(shapes, (1, 1)))
    sizes = onnx_axes.axis_sizes(model, 1, dict.fromkeys(axes, 1), word).sizes
    folder = TextFolder(places=(path.parent, path.parent.parent))
    embedding = next((name for name in EMBEDDINGS if name in outputs), "")
    forms = [shape for dtype, shape in onnx_axes.output_forms(model, sizes).values() if "float" in dtype]
    shape = next((one for one in forms if one and len(one) == 2), next(iter(forms), None))  # as accuracy takes it
    return TextModel(
        inputs={spec.name: spec.dtype for spec in onnx_axes.input_specs(model, sizes)},
        axis=next(iter(axes)) if len(axes) == 1 else "",
        size=None if axes else shapes[IDS][1].dim_value,
        folder=folder,
        embedding=embedding,
        metric=_choose_metric(folder, embedding, shape),
    )


def _name_kind(folder: TextFolder) -> str:
    """Return the class of the model in transformers; "" if no config says it."""
    named = folder.read(CONFIG).get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _choose_metric(folder: TextFolder, embedding: str, shape: Sequence[int] | None) -> str:
    """Return what compares outputs with those in FP32: a text's embedding, pooled if need be, its class or its score.

    Args:
        shape: of the scores; None if only config.json tells of them.

    Returns:
        "" if there are several classes a text, or some for each token: accuracy counts one a text.
    """
    if embedding == POOLED:
        return EMBEDDING
    pooling, kind = folder.find_pooling(), _name_kind(folder)
    is_network = kind and not kind.endswith(TOKEN_HEADS) and "For" not in kind
    if pooling or embedding or is_network:
        return f"{EMBEDDING}@{pooling or 'mean'}"
    if len(shape) > 2 if shape else kind.endswith(TOKEN_HEADS):
        return ""
    config = folder.read(CONFIG)
    classes = len(folder.read_entry(CONFIG, "id2label")) or config.get("num_labels", 2)
    if (shape[1:] in ((), (1,))) if shape else classes == 1:
        return ERROR
    return "" if config.get("problem_type") == SEVERAL else "accuracy"


def _find_size(network: TextModel, given: Mapping[str, Any]) -> int | None:
    """Return the number of tokens that all texts are padded to, if the file or the user says it."""
    asked = (given.get("parameters") or {}).get(network.axis) if network.axis else None
    values = asked if isinstance(asked, tuple | list) else [asked]
    if len(values) > 1:
        told = ",".join(map(str, values))
        raise UsageError(f"--set {network.axis}={told}: texts take one size, or leave it out for their own lengths")
    if values[0] is None:
        return network.size
    if not isinstance(values[0], int) or values[0] < 1:
        raise UsageError(f"--set {network.axis}={values[0]}: expected a whole number of tokens, from 1")
    return values[0]


def _may_mix(network: TextModel, found: Tokens, given: Mapping[str, Any]) -> bool:
    """Return whether the texts' lengths make a mix of sizes."""
    scenario = given.get("scenario")
    lengths = np.array(found.lengths)
    padding = lengths.max() * lengths.size / lengths.sum() - 1
    may_vary = bool(network.axis) and not (found.pads_left and POSITIONS not in network.inputs)
    return may_vary and scenario in (None, VARYING, [VARYING], (VARYING,)) and padding > ALIKE


def _pad(network: TextModel, found: Tokens) -> Tokens:
    """Return tokens with padding behind them, if the model counts positions from the first one and a metric pools.

    Padding before the tokens moves their positions, by another number at each size.
    """
    return found if POSITIONS in network.inputs or "@" not in network.metric else replace(found, pads_left=False)


def _find_scores(network: TextModel, count: int, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metric that scores the texts and the output that it goes by, if the user names none.

    Raises:
        UsageError: there are labels, and the model gives no classes; or only the user can name a metric.
    """
    if not network.metric and "metric" not in given:
        raise UsageError(
            "--texts: the model gives a class to each token or several to a text, and accuracy counts one a text: "
            "name a metric, such as --metric mae"
        )
    is_embedding = network.metric.startswith(EMBEDDING)
    if network.metric != "accuracy" and "labels" in given and "metric" not in given:
        gives = "embeddings" if is_embedding else "one score a text"
        raise UsageError(f"--labels are classes, and the model gives {gives}: leave them out, or name a --metric")
    if {"metric", "truth", "labels"} & {*given}:
        return {}
    if not is_embedding:
        return {"metric": network.metric}
    least, most = RANKED
    metric = network.metric if least <= count <= most else network.metric.replace(EMBEDDING, "cosine")
    named = {"scores": network.embedding} if network.embedding and "scores" not in given else {}
    return {"metric": metric, **named}


def _tell_scope(metric: str) -> tuple[str, ...]:
    """Return the notes on what isn't timed, and on what a number of texts can't tell."""
    name, _, pooling = metric.partition("@")
    part = f"the tokenizer and {pooling} pooling are" if pooling else "the tokenizer is"
    pools = ": the metric pools outputs before it compares them" if pooling else ""
    told = f"{part} part of the reference, not of the timed call{pools}"
    if name != "cosine":
        return (told,)
    return (told, f"the rank of neighbors takes {RANKED[0]} to {RANKED[1]:,} texts, so the cosine alone is scored")


def _keep(
    network: TextModel, found: Tokens, size: int | None, labels: Array | None, facts: RowFacts, stored: str
) -> Path:
    """Return the folder in the cache that holds the rows.

    Args:
        size: the tokens of each row; None: those of the longest text, and the rows are for a mix.
        stored: the name of the file of the inputs.
    """
    width = size or max(found.lengths)
    arrays = {name: found.fill(name, width, dtype) for name, dtype in network.inputs.items()}
    whole = hashlib.sha256(b"".join(array.tobytes() for array in arrays.values()))
    whole.update(b"" if labels is None else labels.tobytes())
    lengths = found.lengths if size is None else None

    def make(folder: Path) -> int:
        np.savez(folder / stored, **arrays)  # type: ignore[arg-type] # as in save_sets
        if labels is not None:
            np.save(folder / LABELS, labels)
        if lengths is not None:
            side = "left" if found.pads_left else "right"
            told = {"axis": network.axis, "largest": width, "padding_side": side, "lengths": lengths}
            (folder / SIZES).write_text(json.dumps(told), encoding="utf-8")
            (folder / LENGTHS).write_text("\n".join(map(str, lengths)), encoding="utf-8")
        return len(found.ids)

    shapes = [[name, array.dtype.name, *array.shape] for name, array in arrays.items()]
    return keep_rows([facts.told, network.axis, shapes, lengths, found.pads_left, whole.hexdigest()], facts, make)

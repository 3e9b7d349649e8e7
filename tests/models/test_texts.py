"""Texts of users as rows: tokens as transformers makes them, their lengths, their classes, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from huggingface_hub import constants
from onnx import TensorProto, helper
from support.exports import obtain
from support.onnx_made import value, write
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

from shootout.core.errors import UsageError
from shootout.core.exported.request import find_source
from shootout.core.study.schema import Study
from shootout.models.data.data_files import read_facts
from shootout.models.metrics.embeddings import pool
from shootout.models.metrics.scoring import report_outputs
from shootout.models.readers.texts import Texts
from shootout.models.sources.packing import pack_files
from shootout.scenarios.mix import read_mix

LINES = [
    line.strip()
    for line in (Path(__file__).parents[2] / "docs" / "metrics.md").read_text().splitlines()
    if len(line.strip()) > 3
][:60]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
BERT = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 400,
    "max_position_embeddings": 32,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}
CLASSES = {"architectures": ["BertForSequenceClassification"], "label2id": {"negative": 0, "positive": 1}}
POOLING = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "word_embedding_dimension": 16}


@pytest.fixture(scope="module")
def tokenizer() -> str:
    """A tokenizer of words of our docs, which pads to 50 and cuts at 8 by itself, as some folders have it."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    made.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=400, special_tokens=SPECIAL))
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.enable_padding(length=50)
    made.enable_truncation(8)
    return str(made.to_str())


@pytest.fixture
def folder(tmp_path: Path, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without weights, which a reader has no need of, and texts beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries.txt").write_text("\n\n".join(LINES), encoding="utf-8")
    made = tmp_path / "bert"
    made.mkdir()
    (made / "tokenizer.json").write_text(tokenizer)
    keep(made / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]"})
    keep(made / "config.json", BERT)
    return made


def keep(path: Path, value: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def keep_table(**columns: Any) -> None:
    pyarrow.parquet.write_table(pyarrow.table(columns), "reviews.parquet")


def keep_modules(folder: Path, *kinds: str, inner: str = "") -> None:
    """Write what sentence-transformers does: each module's class, and its folder."""
    paths = [inner, *(f"{number}_{kind}" for number, kind in enumerate(kinds[1:], 1))]
    told = [
        {"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in zip(kinds, paths, strict=True)
    ]
    keep(folder / "modules.json", told)
    keep(folder / "1_Pooling" / "config.json", POOLING)


def read(model: Any, **given: Any) -> dict[str, Any]:
    return Texts().read(str(model), {"texts": "queries.txt", **given})


def load(fields: dict[str, Any]) -> dict[str, Any]:
    with np.load(fields["inputs"]) as stored:
        return {name: stored[name] for name in stored.files}


def network(path: Path, axis: Any = "tokens", dtype: int = TensorProto.INT64, **outputs: Any) -> Path:
    """A file that takes what a transformer does, with a vector for each token."""
    names = ("input_ids", "attention_mask", "position_ids")
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["last_hidden_state"]),
        *(helper.make_node("Identity", [name], [f"{name}_"]) for name in names[1:]),
    ]
    found = [value("last_hidden_state", ("batch", axis, 4))]
    path.parent.mkdir(exist_ok=True)
    weights = {"table": np.random.default_rng(0).standard_normal((400, 4)).astype(np.float32)}
    return write(path, nodes, [value(name, ("batch", axis), dtype) for name in names], found, weights)


def test_tokens_are_those_of_transformers_and_their_lengths_make_a_mix(folder: Path):
    import transformers  # here and below: not while tests are collected

    fields = read(folder)
    loaded: Any = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = loaded(LINES, padding=True, truncation=True, max_length=32, return_tensors="np")
    found = load(fields)
    assert {*found} == {"input_ids", "attention_mask"}
    for name, array in found.items():
        np.testing.assert_array_equal(array, theirs[name])
        assert array.dtype == np.int64
    sizes = json.loads(Path(fields["inputs"]).with_name("sizes.json").read_text())
    lengths = theirs["attention_mask"].sum(axis=1).tolist()
    assert sizes == {"axis": "sequence_length", "largest": 32, "padding_side": "right", "lengths": lengths}
    mix = read_mix(fields["mix"])
    assert (mix.axis, mix.sizes[-1], sum(mix.weights)) == ("sequence_length", 32, len(LINES))
    cut = sum(len(ids) > 32 for ids in loaded(LINES, max_length=None)["input_ids"])
    facts = read_facts(Path(fields["inputs"]))
    assert facts
    assert (str(facts), fields["metric"]) == ("queries.txt, tokenized (1 file, 60 rows)", "embedding@mean")
    assert f"; {cut} of them cut at 32" in facts.notes[0]
    assert facts.notes[1].startswith("the tokenizer and mean pooling are part of the reference, not of the timed call")


def test_one_size_has_no_mix(folder: Path):
    for given, size in (({"parameters": {"sequence_length": (8,)}}, 8), ({"scenario": "throughput"}, 32)):
        fields = read(folder, **given)
        assert "mix" not in fields
        assert fields["parameters"] == {"sequence_length": size}
        assert load(fields)["input_ids"].shape == (60, size)
    Path("queries.txt").write_text("same words\nwords same\n")
    fields = read(folder)
    assert fields["parameters"] == {"sequence_length": load(fields)["attention_mask"].sum(axis=1)[0]}
    assert fields["metric"] == "cosine@mean", "the rank of ten neighbors takes more than two texts"


def test_a_file_gets_the_inputs_that_it_takes_in_their_types(folder: Path):
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    keep(folder / "tokenizer_config.json", {**tokenizer, "padding_side": "left"})
    fields = read(network(folder / "onnx" / "model.onnx", dtype=TensorProto.INT32))
    found = load(fields)
    mask = found["attention_mask"]
    assert {array.dtype.name for array in found.values()} == {"int32"}
    assert (mask[:, -1] == 1).all(), "padding comes first"
    np.testing.assert_array_equal(found["position_ids"] * mask, (mask.cumsum(axis=1) - 1) * mask)
    assert (found["input_ids"][mask == 0] == 0).all()
    assert fields["mix"].startswith("tokens=")
    assert fields["scores"] == "last_hidden_state"
    fixed = load(read(network(folder / "fixed.onnx", axis=40)))
    assert fixed["input_ids"].shape == (60, 40)
    assert fixed["attention_mask"].sum(axis=1).max() == 32


def test_a_file_without_a_mask_is_told_to_see_its_padding(folder: Path):
    table = {"table": np.ones((400, 4), np.float32)}
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    shape = ("batch", "tokens")
    write(folder / "net.onnx", [node], [value("input_ids", shape, 7)], [value("logits", (*shape, 4))], table)
    facts = read_facts(Path(read(folder / "net.onnx")["inputs"]))
    assert facts
    assert facts.notes[-1] == "the model takes no attention_mask, so padding counts as text"


def test_transformers_opens_a_tokenizer_of_other_files(folder: Path):
    import transformers

    words = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
    (folder / "tokenizer.json").unlink()
    ordered = sorted([*words, "[MASK]"], key=lambda word: words.get(word, len(words)))
    (folder / "vocab.txt").write_text("\n".join(ordered), encoding="utf-8")
    keep(folder / "tokenizer_config.json", {"tokenizer_class": "BertTokenizer"})
    before = transformers.logging.get_verbosity(), constants.HF_HUB_OFFLINE, dict(os.environ)
    fields = read(folder)
    assert (transformers.logging.get_verbosity(), constants.HF_HUB_OFFLINE, dict(os.environ)) == before
    found, loaded = load(fields), transformers.AutoTokenizer.from_pretrained(folder)
    theirs = loaded(LINES, padding=True, truncation=True, max_length=32, return_tensors="np")
    np.testing.assert_array_equal(found["input_ids"], theirs["input_ids"])


def test_classes_are_numbers_or_names_of_the_config(folder: Path):
    keep(folder / "config.json", {**BERT, **CLASSES})
    names = ["positive", "negative", "positive"]
    keep_table(text=LINES[:3], name=names, number=[1, 0, 1])
    Path("names.txt").write_text("\n".join(names))
    for labels in ("reviews.parquet:name", "reviews.parquet:number", "names.txt"):
        fields = read(folder, texts="reviews.parquet:text", labels=labels)
        assert np.load(fields["labels"]).tolist() == [1, 0, 1]
        assert "metric" not in fields, "the accuracy"
    assert read(folder)["metric"] == "accuracy", "the classes of FP32"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"texts": "none.txt"}, "can't read none.txt"),
        ({"texts": "empty.txt"}, "empty.txt holds no texts"),
        ({"texts": "bytes.txt"}, "bytes.txt is not a text file in UTF-8"),
        ({"texts": "queries.jsonl"}, "queries.jsonl is JSON: give lines of text"),
        ({"texts": "reviews.parquet"}, "name a column, as in reviews.parquet:COLUMN; it has text, name, gap"),
        ({"texts": "reviews.parquet:gap"}, "expected a text in each row, got nothing in row 1"),
        ({"labels": "reviews.parquet:name"}, "expected a label for each of the 60 texts, got 2"),
        ({"mix": "tokens=8:1"}, "--mix and --texts both say which sizes calls have"),
        ({"parameters": {"sequence_length": (8, 16)}}, "--set sequence_length=8,16: texts take one size"),
        ({"texts": "reviews.parquet:text", "labels": "reviews.parquet:name"}, "'bad' isn't a class; the model's are"),
        ({"texts": "reviews.parquet:text", "labels": "reviews.parquet:number"}, "has the classes 0 to 1, got 7"),
        ({"texts": "reviews.parquet:text", "labels": "fits.txt"}, "the model gives embeddings: leave them out"),
    ],
)
def test_what_is_no_text_or_class_is_refused_in_a_sentence(folder: Path, given: dict[str, Any], says: str):
    keep(folder / "config.json", {**BERT, "label2id": CLASSES["label2id"]})
    keep_table(text=["a", "b"], name=["negative", "bad"], gap=["a", None], number=[0, 7])
    Path("empty.txt").write_text("\n \n")
    Path("fits.txt").write_text("0\n1")
    Path("bytes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match=says):
        read(folder, **given)


def test_accuracy_is_chosen_only_for_one_class_a_text(folder: Path):
    """A reranker's score has no class, and of several classes a text or a token accuracy would count the highest."""
    keep(folder / "config.json", {**BERT, **CLASSES, "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}})
    assert read(folder)["metric"] == "mae"
    Path("zeros.txt").write_text("0\n" * 60)
    with pytest.raises(UsageError, match="labels are classes, and the model gives one score a text"):
        read(folder, labels="zeros.txt")
    odd = [
        {"architectures": ["BertForSequenceClassification"], "problem_type": "multi_label_classification"},
        *({"architectures": [kind]} for kind in ("BertForTokenClassification", "BertForMaskedLM", "GPT2LMHeadModel")),
    ]
    for more in odd:
        keep(folder / "config.json", {**BERT, **more})
        with pytest.raises(UsageError, match=r"a class to each token or several to a text, .*: name a metric"):
            read(folder)
        assert "metric" not in read(folder, metric="mae"), "the user's"
    table, shape = {"table": np.ones((400, 4), np.float32)}, ("batch", "tokens")
    node = helper.make_node("Gather", ["table", "input_ids"], ["logits"])
    keep(folder / "config.json", {**BERT, "architectures": ["BertForSequenceClassification"]})
    write(folder / "net.onnx", [node], [value("input_ids", shape, 7)], [value("logits", (*shape, 4))], table)
    with pytest.raises(UsageError, match="a class to each token"):
        read(folder / "net.onnx")


def test_a_model_that_numbers_its_tokens_is_padded_behind_them(folder: Path):
    """Padding before the tokens would move their positions, by another number at each size of the mix."""
    keep(folder / "tokenizer_config.json", {"pad_token": "[PAD]", "padding_side": "left"})
    fields = read(folder)
    assert "mix" in fields
    assert (load(fields)["attention_mask"][:, 0] == 1).all()
    keep(folder / "config.json", {**BERT, "architectures": ["GPT2ForSequenceClassification"]})
    fields = read(folder)
    assert "mix" not in fields, "its head takes the last token, whose place only the model's own padding tells"
    assert (load(fields)["attention_mask"][:, -1] == 1).all()


def test_a_text_without_tokens_is_refused_by_its_row(folder: Path):
    bare = json.loads((folder / "tokenizer.json").read_text()) | {"post_processor": None}
    keep(folder / "tokenizer.json", bare)
    keep_table(text=["words", ""])
    with pytest.raises(UsageError, match="makes no tokens of '' in row 1: leave this text out"):
        read(folder, texts="reviews.parquet:text")


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("config.json", {**BERT, "label2id": {"a": "zero"}}, "config.json: expected whole numbers in label2id, got"),
        ("config.json", {**BERT, "label2id": ["a"]}, "config.json: expected an object as label2id, got"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "expected an object as prompts, got"),
        ("1_Pooling/config.json", [1], "config.json holds a list in JSON: expected an object"),
        ("1_Pooling/config.json", {"pooling_mode": 3}, "config.json pools by 3, and the metrics pool by"),
    ],
)
def test_odd_json_beside_a_model_is_named(folder: Path, name: str, value: Any, says: str):
    keep_modules(folder, "Transformer", "Pooling")
    keep(folder / name, value)
    Path("names.txt").write_text("a\n" * 60)
    given = {"labels": "names.txt", "metric": "accuracy"} if name == "config.json" else {}
    with pytest.raises(UsageError, match=says):
        read(folder, **given)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("alone", r"no tokenizer in \S*alone: expected tokenizer\.json"),
        ("broken", r"tokenizer\.json can't be read as a tokenizer"),
        ("vit", "expected a model of one text's token ids; vit is ViTModel"),
        ("net.onnx", r"net\.onnx takes pixels float32\[1, 3, 8, 8\]"),
        ("mlp", r"for a Hugging Face folder, or for an ONNX file .*; got mlp"),
    ],
)
def test_a_model_without_a_tokenizer_or_of_something_else_is_refused(folder: Path, model: str, says: str):
    for name in ("alone", "broken"):
        keep(Path(name, "config.json"), BERT)
    Path("broken/tokenizer.json").write_text("{}")
    keep(Path("vit/config.json"), {"model_type": "vit", "architectures": ["ViTModel"]})
    node = helper.make_node("Relu", ["pixels"], ["y"])
    write(Path("net.onnx"), [node], [value("pixels", (1, 3, 8, 8))], [value("y", (1, 3, 8, 8))])
    with pytest.raises(UsageError, match=says):
        read(model)


def test_a_folder_of_sentence_transformers_says_how_it_pools(folder: Path):
    keep_modules(folder, "Transformer", "Pooling", "Normalize")
    keep(folder / "1_Pooling" / "config.json", {"pooling_mode": "lasttoken"})
    keep(folder / "sentence_roberta_config.json", {"max_seq_length": 12})
    prompts = {"prompts": {"query": "find: "}, "default_prompt_name": "query"}
    keep(folder / "config_sentence_transformers.json", prompts)
    fields = read(folder)
    assert fields["metric"] == "embedding@last"
    found = load(fields)["input_ids"]
    assert found.shape == (60, 12)
    assert (found[:, 1:3] == found[0, 1:3]).all(), "the prompt's words"
    keep_modules(folder, "Transformer", "Pooling", "Dense")
    with pytest.raises(UsageError, match="has the module Dense, and only Transformer, Pooling, Normalize"):
        read(folder)
    keep_modules(folder, "Transformer", "Pooling")
    keep(folder / "1_Pooling" / "config.json", {**POOLING, "pooling_mode_cls_token": True})
    with pytest.raises(UsageError, match="pools by cls_token and mean_tokens"):
        read(folder)


@pytest.mark.long
def test_the_folder_of_an_old_layout_runs_and_its_pooled_outputs_are_those_of_a_plain_loop(folder: Path):
    import transformers

    inner = Path("old/0_Transformer")
    Path("old").mkdir()
    keep(Path("old/config.json"), {"__version__": "0.2.5"})
    keep_modules(Path("old"), "Transformer", "Pooling", inner="0_Transformer")
    folder.rename(inner)
    module: Any = transformers.BertModel(transformers.BertConfig(**BERT)).eval()
    weights = {name: tensor for name, tensor in module.state_dict().items() if not name.startswith("pooler")}
    module.save_pretrained(inner, state_dict=weights)
    keep(
        inner / "config.json", {**json.loads((inner / "config.json").read_text()), "architectures": ["BertForMaskedLM"]}
    )
    assert find_source("old").model("old").weights == inner.absolute()
    study = Study.model_validate({"name": "old", "model": "old", "targets": ("numpy",), **read("old")})
    packed = {Path(name).name for name in pack_files(study, weights=True)[0]}
    assert packed == {"config.json", "model.safetensors", "modules.json", "queries.npz", "sizes.json"}
    fields = read("old", scenario="latency")
    assert fields["metric"] == "embedding@mean"
    given = {"inputs_npz": Path(fields["inputs"]), "scored": "outputs", "scores_all": True}
    exported = obtain("old", fields["parameters"], 1, **given)
    report, own = exported.report(), report_outputs(exported)
    assert report
    assert own
    assert [*own] == ["last_hidden_state"], "no output of BERT's own pooler"
    found = pool("mean", own["last_hidden_state"], report.inputs)
    loaded: Any = transformers.AutoTokenizer.from_pretrained(inner)
    for row, text in enumerate(LINES):
        tokens = loaded(text, truncation=True, max_length=32, return_tensors="pt", return_token_type_ids=False)
        plain = module(**tokens).last_hidden_state.detach().numpy()[0].mean(axis=0)
        np.testing.assert_allclose(found[row], plain, atol=1e-5)

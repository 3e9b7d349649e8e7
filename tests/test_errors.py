"""The words of a library in short, which errors are made of."""

from __future__ import annotations

from shootout.core import errors


def test_a_library_error_is_its_first_line_and_its_innermost_cause():
    """skl2onnx writes all numbers of a model into its message, 2 MB of them, and leaves the reason to the cause."""
    numbers = ", ".join(map(str, range(400_000)))
    outer = ValueError(f"Unable to create node 'TreeEnsembleClassifier' with attributes={{'class_ids': [{numbers}]}}")
    middle = RuntimeError("in between")
    middle.__cause__ = TypeError("Field onnx.AttributeProto.ints: Expected an int, got a boolean.\n" + 99 * "more\n")
    outer.__cause__ = middle
    told = errors.explained(outer)
    assert told.startswith("ValueError: Unable to create node 'TreeEnsembleClassifier' with")
    assert told.endswith(", because of TypeError: Field onnx.AttributeProto.ints: Expected an int, got a boolean")
    assert len(told) <= errors.MOST_LETTERS
    log = "Failed to run:\n\n  CppError: no g++.\nand a log"
    assert errors.explained(ValueError(log)) == "ValueError: Failed to run: | CppError: no g++. | and a log"
    assert errors.explained(ValueError(log * 99)) == "ValueError: Failed to run: CppError: no g++"
    again = RuntimeError("it says: no g++ found")
    again.__cause__ = OSError("no g++ found")
    assert errors.explained(again) == "RuntimeError: it says: no g++ found"
    assert errors.explained(KeyError()) == "KeyError: "


def test_reasons_are_cut_between_words():
    assert errors.shorten("one two three", 13) == "one two three"
    assert errors.shorten("one two three", 12) == "one two…"
    assert errors.shorten("one two: three", 9) == "one two…"
    assert errors.shorten("onetwothree", 5) == "onetw…"
    assert errors.keep_end("one two three", 13) == "one two three"
    assert errors.keep_end("one two three", 8) == "…three"
    assert errors.keep_end("one two three", 9) == "…two three"

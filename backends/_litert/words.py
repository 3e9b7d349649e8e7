"""What the errors of LiteRT's converter mean, where they speak of its own tables instead of the user's model."""

from __future__ import annotations

from shootout.backends.words import ErrorHint

ERROR_HINTS = (
    ErrorHint(
        said=r"Lowering not found: (?P<operator>[\w.:]+)",
        reason="LiteRT's converter can't take this model: it has no way to write torch's {operator}",
        fix="another backend, or a model without that operation",
    ),
)

"""Targets as people write them: `backend[+mode][@python][:device[:precision[/scheme]]]`, `*` for all of a backend's; or
`shipped[@python]:DIR`, a shipped folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from shootout.core import backends, schemes
from shootout.core.constants import SHIPPED
from shootout.core.contract import Capabilities, Device, Precision, Target, is_among
from shootout.core.errors import UsageError, unknown
from shootout.core.exported.model import sha256
from shootout.core.exported.request import is_file, is_own, name_model

_SHAPE = re.compile(
    r"(?P<backend>[^+@:/]+)(\+(?P<mode>[^@:/]+))?(@(?P<python>[^:/]+))?"
    r"(:(?P<device>[^:/]+))?(:(?P<precision>[^:/]+))?(/(?P<scheme>.+))?"
)
_SHIPPED = re.compile(rf"{SHIPPED}(@(?P<python>[^:/]+))?:(?P<folder>.+)")
_NAME = re.compile(r"[A-Za-z0-9._-]+")
"""The names that a shipped folder may have: its arm's label is cut apart at other letters."""

Describe = Callable[[str], tuple[Capabilities, Target]]
"""A backend's capabilities and its first target, by name; raises UsageError for an unknown name."""


def parse_targets(text: str, describe: Describe, pythons: Collection[str] = ()) -> list[Target]:
    """Parse the targets that `text` names, several if it holds `*`.

    Args:
        pythons: names of the other interpreters.

    Raises:
        UsageError: the text is malformed, or names a backend, mode, interpreter, device, precision or scheme that isn't
            known.
    """
    if shipped := _SHIPPED.fullmatch(text.strip()):
        return [_parse_shipped(text, shipped["folder"], shipped["python"] or "", pythons)]
    if moved := _move_interpreter(text.strip()):
        raise UsageError(f"target {text!r}: the interpreter follows the backend; write {moved}")
    match = _SHAPE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"target {text!r} is not of the form backend[+mode][@python]:device:precision[/scheme]")
    part = {name: value or "" for name, value in match.groupdict().items()}
    part["device"] = _spell_device(part["device"])
    _refuse_lone_precision(text.strip(), part)
    capabilities, first = describe(part["backend"])
    if not is_among(part["mode"], capabilities.modes):
        _refuse_unknown("mode", part["mode"], capabilities.modes, text)
    _check_python(part["python"], pythons, text)
    schemes.parse(part["scheme"], own=own_words(capabilities))
    own = {name: part[name] for name in ("backend", "mode", "scheme", "python")}
    targets = [
        Target(**own, device=device, precision=precision)
        for device, precision in _expand_pairs(part["device"], part["precision"], capabilities, first)
    ]
    if not targets:
        offered = ", ".join(sorted(f"{device}:{precision}" for device, precision in capabilities.targets))
        raise UsageError(f"{part['backend']} can't run {text!r}: it offers {offered}")
    return targets


def _move_interpreter(text: str) -> str:
    """Return a target's text with `@python` where it belongs, behind the backend and its mode; "" if it is there."""
    found = re.search(r"@[^:/+@]+", text)
    if not found:
        return ""
    rest = text.replace(found[0], "", 1)
    head = re.split("[:/]", rest)[0]
    moved = f"{head}{found[0]}{rest.removeprefix(head)}"
    return "" if moved == text else moved


def _refuse_lone_precision(text: str, part: Mapping[str, str]) -> None:
    """Refuse a precision in the place of a backend or a device, and say what to write.

    Raises:
        UsageError: it is one.
    """
    precisions = {*map(str, Precision)}
    python = f"@{part['python']}" if part["python"] else ""
    if part["backend"] in precisions:
        raise UsageError(f"target {text!r} lacks a backend; write its name first: NAME{python}:cpu:{part['backend']}")
    if part["device"] in precisions and not part["precision"]:
        raise UsageError(f"target {text!r} lacks a device; write {text.replace(':', ':cpu:', 1)}")


def _parse_shipped(text: str, folder: str, python: str, pythons: Collection[str]) -> Target:
    """Return the target that a shipped folder is; its manifest tells the device and the precision."""
    place = Path(folder).expanduser().resolve()
    before, _, after = folder.rpartition("@")
    if before and not place.exists() and Path(before).expanduser().exists():
        raise UsageError(f"target {text!r}: the interpreter follows the backend; write {SHIPPED}@{after}:{before}")
    if not _NAME.fullmatch(place.name):
        raise UsageError(f"target {text!r}: call the folder by letters, digits, '.', '-' and '_' alone")
    _check_python(python, pythons, text)
    return replace(backends.open_shipped(str(place)).target, python=python, folder=str(place))


def refuse_namesakes(targets: Iterable[Target]) -> None:
    """Refuse shipped folders that would be one arm's label.

    Raises:
        UsageError: two of different places have one name.
    """
    places: dict[str, str] = {}
    for target in targets:
        if target.folder and places.setdefault(str(target), target.folder) != target.folder:
            raise UsageError(f"{places[str(target)]} and {target.folder} would both be {target}: rename one of them")


def refuse_other_models(targets: Iterable[Target], raced: Iterable[str]) -> None:
    """Refuse shipped folders of models that can't be the ones raced.

    A registered model is known by its name. A user's own may lie elsewhere by now, or under another name. So its
    content decides, which only the export tells (`Shipped.misfit`).

    Raises:
        UsageError: there is one.
    """
    kinds = {_kind_of(model): name_model(model) for model in raced}
    for target in targets:
        if target.folder and _kind_of(named := backends.open_shipped(target.folder).model["name"]) not in kinds:
            raise UsageError(
                f"{target} was made of {named}, and this race is of {', '.join(kinds.values())}: name its model, as in "
                f"shootout run {named} --backends {SHIPPED}:{target.folder}"
            )


def _kind_of(model: str) -> str:
    """Return a registered model's name, and for a user's own only whether it is a file or code."""
    if is_file(model):
        return "a file"
    return "code" if is_own(model) else name_model(model)


def shipped_hashes(targets: Iterable[Target]) -> list[str]:
    """Return the hash of each shipped folder's manifest, and so of the folder."""
    return [sha256(backends.open_shipped(target.folder).manifest) for target in targets if target.folder]


def _check_python(python: str, pythons: Collection[str], text: str) -> None:
    if python and python not in pythons:
        error = unknown("interpreter", python, pythons)
        raise UsageError(f"{error} (in target {text!r}): name it with --python {python}=path/to/python")


def with_twins(targets: Sequence[Target], pythons: Iterable[str]) -> list[Target]:
    """Return the targets, each with a twin under every interpreter that none of them names."""
    unnamed = [name for name in pythons if name not in {target.python for target in targets}]
    return [twin for target in targets for twin in (target, *(replace(target, python=name) for name in unnamed))]


def provider(target: Target) -> tuple[str, Device]:
    """Return the backend (`backend@python` under another interpreter) and the device whose probe the target needs."""
    return target.backend + (f"@{target.python}" if target.python else ""), target.device


def own_words(capabilities: Capabilities) -> frozenset[str]:
    """Return all scheme words that the backend has for any precision."""
    return frozenset(word for words in capabilities.schemes.values() for word in words)


def scheme_of(target: Target) -> schemes.Scheme:
    """Return the target's scheme, read with its backend's own words."""
    return schemes.parse(target.scheme, own=own_words(backends.capabilities(target.backend)))


def canonical(text: str) -> str:
    """Return a target's text with the one name of its device."""
    return ":".join(map(_spell_device, text.split(":")))


def _spell_device(word: str) -> str:
    try:
        return Device(word)
    except ValueError:  # no device, or none that is known
        return word


def _expand_pairs(
    device: str, precision: str, capabilities: Capabilities, first: Target
) -> list[tuple[Device, Precision]]:
    """Return the (device, precision) pairs asked for, with the backend's first target for what was left out."""
    if device not in ("", "*"):
        _refuse_unknown("device", device, {str(known) for known in Device}, device)
    if precision not in ("", "*"):
        _refuse_unknown("precision", precision, {str(known) for known in Precision}, precision)
    wanted_device = device or first.device
    wanted_precision = precision or first.precision
    if "*" not in (wanted_device, wanted_precision):  # one that the backend doesn't offer is a row that says so
        return [(Device(wanted_device), Precision(wanted_precision))]
    return [
        (offered_device, offered_precision)
        for offered_device, offered_precision in sorted(capabilities.targets)
        if wanted_device in ("*", offered_device) and wanted_precision in ("*", offered_precision)
    ]


def _refuse_unknown(what: str, received: str, known: set[str] | frozenset[str], text: str) -> None:
    if received not in known:
        error = unknown(what, received, [name for name in known if name])
        raise UsageError(f"{error} (in target {text!r})" if text != received else str(error))

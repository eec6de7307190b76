"""Fields by layer: ``per_layer_config`` of huggingface/transformers 5 (integrations/heterogeneity), for every family.

A layer with overrides is that layer of the model whose configuration has those values everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tokenwire.model.architecture import Architecture, Layer
from tokenwire.model.fields import Fields

_SKIPPED = {"attention": "mixer", "self_attn": "mixer", "mixer": "mixer", "mlp": "feed_forward", "feed_forward": "feed_forward", "ffn": "feed_forward"}
"""What names of ``skip`` leave out of a layer."""


def with_overrides(fields: Fields, arch: Architecture, read: Callable[[Fields], Architecture]) -> Architecture:
    """Return the architecture with the layers that ``per_layer_config`` changes. Raises ``InputError`` where it cannot be read.

    >>> from tokenwire.model import from_huggingface
    >>> two = {"model_type": "llama", "num_hidden_layers": 2, "per_layer_config": {"1": {"intermediate_size": 512}}}
    >>> [layer.feed_forward.width for layer in from_huggingface(two).layers]
    [11008, 512]
    """
    given = fields.value("per_layer_config")
    if given is None or given == {}:
        return arch
    if not isinstance(given, Mapping) or not all(isinstance(each, Mapping) for each in given.values()):
        raise fields.wrong("per_layer_config", given, "must be a mapping of layers to their own fields")
    layers, made = list(arch.layers), dict[str, Architecture]()
    for key, own in given.items():
        index = int(key) if str(key).isdecimal() and len(str(key)) < 7 else -1
        if not 0 <= index < len(layers):
            raise fields.wrong("per_layer_config", key, f"names layers from 0 to {len(layers) - 1}")
        values = {name: value for name, value in own.items() if name != "skip"}
        with_own = made.setdefault(repr(values), _again(fields, values, read))
        if len(with_own.layers) != len(layers):
            raise fields.wrong("per_layer_config", own, "must not change the number of layers")
        layers[index] = _without(fields, with_own.layers[index], own.get("skip"))
    same: dict[Layer, Layer] = {}
    return replace(arch, layers=tuple(same.setdefault(layer, layer) for layer in layers))


def _again(fields: Fields, values: dict[str, Any], read: Callable[[Fields], Architecture]) -> Architecture:
    arch = read(fields.having(values))
    if ignored := [name for name in values if name in fields.having(values).unread()]:
        raise fields.wrong("per_layer_config", ignored[0], "is no field that a layer of this family can have of its own")
    return arch


def _without(fields: Fields, layer: Layer, skip: Any) -> Layer:
    if not skip:
        return layer
    if not isinstance(skip, list) or any(name not in _SKIPPED for name in skip):
        raise fields.wrong("skip", skip, f"must be a list of {', '.join(_SKIPPED)}")
    gone = {_SKIPPED[name] for name in skip}
    mixer, feed = None if "mixer" in gone else layer.mixer, None if "feed_forward" in gone else layer.feed_forward
    had, left = (sum(part is not None for part in pair) for pair in ((layer.mixer, layer.feed_forward), (mixer, feed)))
    return replace(layer, mixer=mixer, feed_forward=feed, norms=layer.norms * left // max(had, 1))

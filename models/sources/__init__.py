"""Kinds of models that people bring: a zoo's name, an ONNX file, a folder of them, a factory, a config, trees, a `.pt`.

Plug-ins: they import core, and core finds them by the words that they claim (`shootout.core.exported.request`).
"""

TABLE = {
    "zoo": "shootout.models.sources.zoo:Zoo",
    "probes": "shootout.models.sources.zoo:Probes",
    "onnx": "shootout.models.sources.onnx_file:OnnxFile",
    "trees": "shootout.models.sources.trees:Trees",
    "yolo-pt": "shootout.models.sources.yolo_pt:YoloPt",
    "program": "shootout.models.sources.own:Program",
    "variants": "shootout.models.sources.variants:Variants",
    "transformers": "shootout.models.sources.hfconfig:TransformersConfig",
    "factory": "shootout.models.sources.own:Factory",
}
"""The sources that ship, each where its class is, in the order in which a word is offered to them."""

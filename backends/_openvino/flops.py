"""Operations of a product in a model that OpenVINO exported."""

from __future__ import annotations

from xml.etree import ElementTree

from shootout.bundle.workload import convolution_flops, product_flops


def flops(layer: ElementTree.Element) -> float | None:
    """Two for each multiply-add; None where the layer's kind is not known here, or a shape depends on data."""
    shapes = {side: [_shape(port) for port in layer.iterfind(f"{side}/port")] for side in ("input", "output")}
    (left, right, *_), (output, *_) = shapes["input"], shapes["output"]
    if any(size < 0 for shape in (left, right, output) for size in shape):
        return None
    match str(layer.get("type")):
        case "Convolution":
            return convolution_flops(output, right)
        case "GroupConvolution":  # (groups, out ÷ groups, in ÷ groups, *window)
            return convolution_flops(output, right[1:])
        case "ConvolutionBackpropData":  # every input element is multiplied by each weight of its channel
            return convolution_flops(left, right)
        case "MatMul":
            data = layer.find("data")
            transposed = data is not None and data.get("transpose_a") == "true"
            return product_flops(output, left[-2 if transposed else -1])
        case kind if kind.startswith("FullyConnected"):
            return product_flops(output, left[-1])
    return None


def _shape(port: ElementTree.Element) -> list[int]:
    return [int(str(one.text)) for one in port.iterfind("dim")]

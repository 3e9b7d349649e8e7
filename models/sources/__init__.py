"""Turn what people bring as a model into an exported model: a zoo's name, an ONNX file, a factory, a folder, trees."""

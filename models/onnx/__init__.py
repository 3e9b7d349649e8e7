"""Read and change ONNX files: sizes, graphs, layers, versions, cuts."""

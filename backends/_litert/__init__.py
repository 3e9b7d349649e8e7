"""LiteRT on the CPU: Google's runtime for devices, once TensorFlow Lite."""

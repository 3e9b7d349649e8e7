"""What the backends take of models that this project did not make, and what TensorRT builds."""

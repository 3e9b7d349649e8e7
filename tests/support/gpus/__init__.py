"""GPUs that are none, one fake for each library: CUDA, TensorRT, torch, ONNX Runtime, NVIDIA's driver and NVML.

Their queues do nothing until they are waited for, from pageable memory too. So a result that is read too early, memory
that is written over too early, or work on another stream gives wrong numbers here, and not only on a bad day.
"""

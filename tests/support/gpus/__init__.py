"""GPUs that are none: one of host memory, NVIDIA's driver and NVML as recorded, a queue that is waited for."""

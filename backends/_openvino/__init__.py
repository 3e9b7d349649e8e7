"""OpenVINO and NNCF: one adapter, `openvino`."""

"""NVIDIA devices through NVML: the connection, the boards and their slices, the queries."""

"""What a run needs in bytes: device and host memory by role, files; named entries with their formulas."""

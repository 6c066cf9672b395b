"""What every node checks before any weights are read: one small file a probe, each with a deadline."""

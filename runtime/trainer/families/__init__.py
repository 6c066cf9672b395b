"""Model families: torchtitan configs and checkpoint names for Hugging Face configs."""

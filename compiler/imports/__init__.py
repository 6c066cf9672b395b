"""Configurations of other tools, read as run specs: every key of the input is accounted for."""

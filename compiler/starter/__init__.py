"""First files of a new user: a commented run spec, a cluster file, a model entry. Only `place` looks around."""

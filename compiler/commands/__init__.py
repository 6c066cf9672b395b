"""One file a command of the command line; compiler/cli.py lists them."""

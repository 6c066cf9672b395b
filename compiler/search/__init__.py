"""Which layout: all legal ones, judged by rules, ledger and forecast; the best by the objective of the spec."""

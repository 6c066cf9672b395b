"""Coefficients from measurements: public rows with groups left out, or a finished run."""

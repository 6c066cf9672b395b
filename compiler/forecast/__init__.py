"""How long a step takes: formulas alone; coefficients are data in the catalog."""

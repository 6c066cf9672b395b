"""From a layout to a bundle: topology, commands, configs, scripts, and their checks. Decides nothing of the layout."""

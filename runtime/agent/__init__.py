"""The node agent: wraps every process of a run, the same on Slurm and on one machine.

`python -m prlc.runtime.agent --role R --index I -- COMMAND...` waits for the role's gates, runs the command
in a process group of its own, keeps its output, restarts it where the topology allows, and ends it when the
run ends.
"""

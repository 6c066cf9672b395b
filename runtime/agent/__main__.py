"""`python -m prlc.runtime.agent --role R --index I -- COMMAND...`"""

from __future__ import annotations

import argparse
import signal
import sys

from prlc.runtime.agent.child import die_with_parent
from prlc.runtime.agent.supervise import from_environment
from prlc.runtime.ops.rendezvous import RendezvousError
from prlc.schema.codec import DocumentError


def main(argv: list[str] | None = None) -> int:
    """Exit status of the agent: see Agent.run; 2 where it cannot even begin."""
    parser = argparse.ArgumentParser(prog="prlc.runtime.agent", description=__doc__)
    parser.add_argument("--role", required=True, help="role of the topology")
    parser.add_argument("--index", required=True, type=int, help="index of the process within its role")
    parser.add_argument("command", nargs="+", help="program and its arguments, after --")
    arguments = parser.parse_args(argv)
    die_with_parent(signal.SIGUSR2)  # a launcher that is killed outright runs no trap
    try:
        agent = from_environment(arguments.role, arguments.index, arguments.command)
    except KeyError as error:
        print(f"prlc agent: the launcher did not set {error.args[0]}", file=sys.stderr)
        return 2
    except (DocumentError, RendezvousError, OSError, ValueError) as error:
        print(f"prlc agent: {error}", file=sys.stderr)
        return 2
    return agent.run()


if __name__ == "__main__":
    sys.exit(main())

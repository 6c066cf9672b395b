"""The node agent around real processes: what it waits for, what it restarts, what it ends, what it leaves."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from prlc.runtime.agent.listeners import holders
from prlc.runtime.ops.events import read_lines
from prlc.schema.topology import Endpoint, Gate, Role

from tests.agent.conftest import LIMIT, Run, ended, free_port

WORK = "import os, pathlib; (pathlib.Path(os.environ['PRLC_RUN_DIR']) / 'done').mkdir(exist_ok=True); "
DONE = WORK + "(pathlib.Path(os.environ['PRLC_RUN_DIR']) / 'done' / os.environ['PRLC_ROLE']).touch(); "
SERVE = """
import http.server, os, sys
class Health(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({status}); self.end_headers()
    def log_message(self, *_): pass
print('serving', os.getpid())
http.server.HTTPServer(('127.0.0.1', {port}), Health).serve_forever()
"""
FOREVER = "import os, time; print('pid', os.getpid()); time.sleep(600)"


def role(name: str, *, port: int = 0, ready: str = "none", finishes: bool = False, **more: Any) -> Role:
    kind = {"engine": "engine", "trainer": "trainer"}.get(name, "orchestrator")
    return Role(
        name=name, kind=kind, ready=ready, finishes=finishes,  # type: ignore[arg-type]
        endpoints=(Endpoint(index=0, node=0, port=port),), **more,
    )  # fmt: skip


def eventually(what: Callable[[], object]) -> object:
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        try:
            if value := what():
                return value
        except (OSError, IndexError):
            pass
        time.sleep(0.05)
    raise AssertionError("it never came to pass")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pid_in(run: Run, name: str) -> int:
    return int(str(eventually(lambda: run.log(name).split()[-1])))


def events(run: Run, name: str) -> list[str]:
    return [record["event"] for record in read_lines(run.dir / "events" / f"agent-{name}.jsonl")]


def test_a_service_starts_serves_and_stops_when_the_finishers_are_done(run: Callable[..., Run]) -> None:
    port = free_port()
    it = run(
        role("engine", port=port, ready="health"),
        role("trainer", finishes=True, gates=(Gate(role="engine", deadline=LIMIT),)),
    )
    engine = it.start("engine", SERVE.format(status=200, port=port))
    eventually(lambda: "ready" in events(it, "engine-0"))
    trainer = it.start("trainer", DONE + "print('trained')")
    assert ended(trainer)[0] == 0
    assert ended(engine)[0] == 0
    assert it.log("trainer-0") == "trained\n"
    assert not alive(pid_in(it, "engine-0"))
    assert events(it, "engine-0") == ["started", "ready", "stops", "stopped"]
    assert events(it, "trainer-0") == ["waits", "started", "finished"]
    assert not (it.dir / "FAILED").exists()


def test_a_gate_that_passes_its_deadline_names_what_is_missing_and_fails_the_run(
    run: Callable[..., Run],
) -> None:
    port = free_port()
    it = run(
        role("engine", port=port, ready="health"),
        role("trainer", finishes=True, gates=(Gate(role="engine", deadline=1.0),)),
    )
    engine = it.start("engine", SERVE.format(status=503, port=port))
    code, output = ended(it.start("trainer", DONE))
    assert code == 1
    cause = json.loads((it.dir / "FAILED").read_text())["cause"]
    assert "trainer-0 waited for engine: 1 of 1 engine processes not ready after 1 s" in cause
    assert f"engine-0: not up yet, no file {it.dir}/attempts/1/ready/engine-0" in cause
    assert "logs/engine-0.log" in cause
    assert cause in output
    assert ended(engine)[0] == 1, "FAILED stops the others"
    assert not (it.dir / "attempts" / "1" / "logs" / "trainer-0.log").exists(), "the command never started"


def test_a_gate_on_a_file_opens_when_the_file_is_there(run: Callable[..., Run]) -> None:
    it = run(
        role("engine", ready="file"),
        role("trainer", finishes=True, gates=(Gate(role="engine", deadline=LIMIT),)),
    )
    trainer = it.start("trainer", DONE)
    eventually(lambda: "waits" in events(it, "trainer-0"))
    assert events(it, "trainer-0") == ["waits"]
    (it.dir / "attempts" / "1" / "ready" / "engine-0").touch()
    assert ended(trainer)[0] == 0


def test_a_dead_service_is_started_again_as_often_as_allowed(run: Callable[..., Run]) -> None:
    it = run(role("engine", restarts=2), role("trainer", finishes=True))
    code, output = ended(it.start("engine", "print('life'); raise SystemExit(7)"))
    assert code == 1
    assert it.log("engine-0") == "life\n" * 3
    failure = json.loads((it.dir / "FAILED").read_text())
    assert failure["cause"] == "engine-0 ended with status 7 after 2 restarts"
    assert (failure["role"], failure["status"], failure["attempt"]) == ("engine", 7, 1)
    assert "| life" in output


def test_a_service_that_ends_with_zero_is_dead_too(run: Callable[..., Run]) -> None:
    it = run(role("engine"), role("trainer", finishes=True))
    assert ended(it.start("engine", "pass"))[0] == 1
    assert "engine-0 ended with status 0" in (it.dir / "FAILED").read_text()


def test_a_failed_finisher_fails_the_run_and_keeps_the_first_cause(run: Callable[..., Run]) -> None:
    it = run(role("trainer", finishes=True), role("orchestrator", finishes=True))
    orchestrator = it.start("orchestrator", "import time; time.sleep(600)")
    eventually(lambda: "started" in events(it, "orchestrator-0"))
    assert ended(it.start("trainer", "raise SystemExit(3)"))[0] == 1
    code, output = ended(orchestrator)
    assert code == 1
    assert "the run failed: trainer-0 ended with status 3" in output
    assert json.loads((it.dir / "FAILED").read_text())["role"] == "trainer"


def test_a_killed_process_has_a_shells_status(run: Callable[..., Run]) -> None:
    it = run(role("trainer", finishes=True))
    assert ended(it.start("trainer", "import os; os.kill(os.getpid(), 9)"))[0] == 1
    assert json.loads((it.dir / "FAILED").read_text())["status"] == 137


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command_as_term_and_is_no_failure(
    run: Callable[..., Run], number: signal.Signals
) -> None:
    it = run(role("trainer", finishes=True))
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('saved'), sys.exit(0)))\n"
        "print('up'); time.sleep(600)"
    )
    agent = it.start("trainer", code)
    eventually(lambda: it.log("trainer-0") == "up\n")
    agent.send_signal(number)
    assert ended(agent)[0] == 128 + number
    assert it.log("trainer-0") == "up\nsaved\n"
    assert not (it.dir / "FAILED").exists()


def test_what_ignores_term_and_what_it_left_behind_is_killed(run: Callable[..., Run]) -> None:
    it = run(role("engine", stop_grace=0.5))
    code = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print('left', left.pid); time.sleep(600)"
    )
    agent = it.start("engine", code)
    left = pid_in(it, "engine-0")
    agent.terminate()
    assert ended(agent)[0] == 143
    assert not alive(left)


def test_the_command_does_not_outlive_a_killed_agent(run: Callable[..., Run]) -> None:
    it = run(role("engine"))
    agent = it.start("engine", FOREVER)
    pid = pid_in(it, "engine-0")
    agent.kill()
    agent.wait()
    eventually(lambda: not alive(pid) or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] == "Z"


def test_status_zero_without_the_done_file_is_a_failure(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prlc.runtime.agent import supervise

    monkeypatch.setattr(supervise, "DONE_GRACE", 0.5)
    it = run(role("trainer", finishes=True))
    for name, value in it.environment(1).items():
        monkeypatch.setenv(name, value)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert supervise.from_environment("trainer", 0, ["true"]).run() == 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "did not write done/trainer" in (it.dir / "FAILED").read_text()


def test_a_finished_role_is_not_run_again(run: Callable[..., Run]) -> None:
    it = run(role("trainer", finishes=True))
    assert ended(it.start("trainer", DONE))[0] == 0
    it.attempt(2)
    assert ended(it.start("trainer", "raise SystemExit(1)", attempt=2))[0] == 0
    assert events(it, "trainer-0")[-1] == "already_done"


def test_a_newer_attempt_stops_what_an_older_one_left(run: Callable[..., Run]) -> None:
    it = run(role("engine"), role("trainer", finishes=True))
    agent = it.start("engine", FOREVER)
    pid = pid_in(it, "engine-0")
    it.attempt(2)
    code, output = ended(agent)
    assert code == 1
    assert "a newer attempt has begun" in output
    assert not alive(pid)
    assert not (it.dir / "FAILED").exists(), "an old life cannot fail the new one"


def test_a_program_that_is_not_there_fails_the_run(run: Callable[..., Run]) -> None:
    it = run(role("trainer", finishes=True))
    agent = it.start("trainer", "", program="no-such-program")
    assert ended(agent)[0] == 1
    assert "trainer-0: cannot start no-such-program" in (it.dir / "FAILED").read_text()


def test_an_unknown_role_is_refused_before_anything_starts(run: Callable[..., Run]) -> None:
    it = run(role("trainer", finishes=True))
    code, output = ended(it.start("router", "pass"))
    assert code == 2
    assert "no role 'router'" in output


def test_a_missing_variable_is_named() -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "prlc.runtime.agent", "--role", "r", "--index", "0", "--", "true"],
        env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=LIMIT,
    )  # fmt: skip
    assert answer.returncode == 2
    assert "did not set PRLC_BUNDLE" in answer.stderr


def test_a_service_waits_until_its_port_is_free(run: Callable[..., Run]) -> None:
    port = free_port()
    one = run(role("engine", port=port, ready="health"), role("trainer", finishes=True))
    with socket.create_server(("127.0.0.1", port)):
        agent = one.start("engine", SERVE.format(status=200, port=port))
        eventually(lambda: (one.dir / "events" / "agent-engine-0.jsonl").exists())
        time.sleep(1.0)  # five looks at the port
        assert not (one.dir / "attempts" / "1" / "logs").exists()
    eventually(lambda: "serving" in one.log("engine-0"))
    ended(one.start("trainer", DONE))
    assert ended(agent)[0] == 0


def test_a_port_that_stays_taken_fails_the_run_and_names_the_holder(
    run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    from prlc.runtime.agent import supervise

    monkeypatch.setattr(supervise, "PORT_WAIT", 0.5)
    port = free_port()
    it = run(role("engine", port=port, ready="health"), role("trainer", finishes=True))
    for name, value in it.environment(1).items():
        monkeypatch.setenv(name, value)
    holder = subprocess.Popen(
        [sys.executable, "-uc", SERVE.format(status=200, port=port)],
        env={"PATH": os.environ["PATH"], "PRLC_RUN_DIR": "/runs/other"}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline().startswith("serving")
        eventually(lambda: next(holders(port), None))
        assert supervise.from_environment("engine", 0, ["true"]).run() == 1
    finally:
        holder.kill()
        holder.wait()
    cause = json.loads((it.dir / "FAILED").read_text())["cause"]
    assert f"127.0.0.1:{port} is held by process {holder.pid} of " in cause
    assert "of the run in /runs/other" in cause


def test_a_foreign_server_on_the_port_makes_nobody_ready(run: Callable[..., Run]) -> None:
    """The child lives, its port answers 200, and it is not the child that answers."""
    port = free_port()
    it = run(
        role("engine", port=port, ready="health"),
        role("trainer", finishes=True, gates=(Gate(role="engine", deadline=3.0),)),
    )
    server = SERVE.format(status=200, port=port)
    late = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-uc', {server!r}], start_new_session=True)\n"
        "time.sleep(600)"
    )
    agent = it.start("engine", late)
    code, output = ended(it.start("trainer", DONE))
    assert code == 1, output
    assert "engine-0: not up yet" in output
    assert ended(agent)[0] == 1
    for holder in holders(port):
        os.kill(holder.pid, signal.SIGKILL)


def test_a_mark_without_the_runs_own_server_opens_no_gate(run: Callable[..., Run]) -> None:
    port = free_port()
    it = run(
        role("engine", port=port, ready="health"),
        role("trainer", finishes=True, gates=(Gate(role="engine", deadline=1.0),)),
    )
    (it.dir / "attempts" / "1" / "ready" / "engine-0").touch()
    other = subprocess.Popen(
        [sys.executable, "-uc", SERVE.format(status=401, port=port)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline().startswith("serving")
        eventually(lambda: next(holders(port), None))
        code, output = ended(it.start("trainer", DONE))
    finally:
        other.kill()
        other.wait()
    assert code == 1
    assert "refuses the run's token: another run's server" in output


def test_the_mark_goes_when_the_process_dies(run: Callable[..., Run]) -> None:
    port = free_port()
    it = run(role("engine", port=port, ready="health", restarts=1), role("trainer", finishes=True))
    agent = it.start("engine", SERVE.format(status=200, port=port))
    mark = it.dir / "attempts" / "1" / "ready" / "engine-0"
    eventually(mark.exists)
    first = json.loads(mark.read_text())["pid"]
    os.kill(first, signal.SIGKILL)
    eventually(lambda: not mark.exists())
    eventually(lambda: mark.exists() and json.loads(mark.read_text())["pid"] != first)
    eventually(lambda: events(it, "engine-0") == ["started", "ready", "ended", "started", "ready"])
    ended(it.start("trainer", DONE))
    assert ended(agent)[0] == 0


def test_an_agent_ends_with_its_launcher(run: Callable[..., Run]) -> None:
    it = run(role("engine"))
    parent = it.launch("engine", FOREVER)
    pid = pid_in(it, "engine-0")
    parent.kill()
    parent.wait()
    eventually(lambda: not alive(pid) or _is_zombie(pid))
    assert not (it.dir / "FAILED").exists()


def test_a_token_that_others_can_read_is_refused(run: Callable[..., Run]) -> None:
    it = run(role("trainer", finishes=True))
    (it.dir / "attempts" / "1" / "token").chmod(0o640)
    code, output = ended(it.start("trainer", DONE))
    assert code == 2
    assert "must be for its owner alone (mode 600), it has 640" in output

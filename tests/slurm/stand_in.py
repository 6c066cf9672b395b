"""Stand-ins for engine, orchestrator and trainer: a whole run in miniature, in the standard library alone.

The orchestrator asks the engines for the numbers of a batch, ships batches 1, 2, ... and never two of the same; the
trainer trains them in order, keeps what it has trained in its checkpoints, saves when it is told to stop, and resumes
from the newest complete checkpoint. `trained` of the last checkpoint is the proof that nothing was lost or doubled.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path

STEPS = 40
EVERY = 4  # steps between checkpoints
PATIENCE = 90.0  # s for an engine to answer, for a batch to come

RUN = Path(os.environ.get("PRLC_RUN_DIR", "."))


def bearer() -> str:
    """The Authorization header of this attempt."""
    return "Bearer " + (RUN / "attempts" / os.environ["PRLC_ATTEMPT"] / "token").read_text()


def put(folder: Path, content: object) -> None:
    """A folder with a file `content` that appears whole."""
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    partial.mkdir(parents=True, exist_ok=True)
    (partial / "content").write_text(json.dumps(content))
    (partial / "COMPLETE").touch()
    if not (folder / "COMPLETE").exists():
        partial.rename(folder)


def newest(folder: Path) -> int:
    """Largest number of a complete folder step_N, 0 without one."""
    return max((int(p.parent.name[5:]) for p in folder.glob("step_*/COMPLETE")), default=0)


def done() -> None:
    """This role has ended well."""
    (RUN / "done").mkdir(exist_ok=True)
    (RUN / "done" / os.environ["PRLC_ROLE"]).touch()


def engine(address: str, port: str) -> None:
    """Answers what holds the run's token."""
    wanted = bearer()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            good = self.headers.get("Authorization") == wanted
            self.send_response(200 if good else 401)
            self.end_headers()
            if good:
                self.wfile.write(self.path.encode())

        def log_message(self, *_: object) -> None:
            pass

    http.server.ThreadingHTTPServer((address, int(port)), Handler).serve_forever()


def orchestrator(urls: list[str]) -> None:
    """Ships batch k once version k - 2 is there, so that it stays two ahead."""
    for step in range(newest(RUN / "batches") + 1, STEPS + 1):
        while step > newest(RUN / "checkpoints") + 2 * EVERY:
            time.sleep(0.05)
        put(RUN / "batches" / f"step_{step:08d}", [ask(urls, 10 * step + i) for i in range(2)])
    while newest(RUN / "checkpoints") < STEPS:
        time.sleep(0.1)
    done()


def ask(urls: list[str], number: int) -> int:
    """The number, back from an engine; another engine where one is gone."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    end = time.monotonic() + PATIENCE
    while True:
        for url in urls:
            request = urllib.request.Request(f"{url}/{number}", headers={"Authorization": bearer()})
            try:
                with opener.open(request, timeout=5) as answer:
                    return int(answer.read().decode().strip("/"))
            except OSError as error:
                print("engine", url, error, flush=True)
        if time.monotonic() > end:
            raise TimeoutError("no engine answers")
        time.sleep(0.3)


def trainer(seconds: float) -> None:
    """Trains to STEPS, each that long; exit status 75 after a signal, with a checkpoint."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    step = newest(RUN / "checkpoints")
    at = RUN / "checkpoints" / f"step_{step:08d}" / "content"
    trained = json.loads(at.read_text()) if step else []
    print("from", step, flush=True)
    while step < STEPS:
        batch = RUN / "batches" / f"step_{step + 1:08d}"
        end = time.monotonic() + PATIENCE
        while not (batch / "COMPLETE").exists():
            if stopped or time.monotonic() > end:
                break
            time.sleep(0.05)
        if stopped:
            break
        trained += json.loads((batch / "content").read_text())
        time.sleep(seconds)
        step += 1
        with open(RUN / "trained.log", "a") as log:
            log.write(f"{os.environ['PRLC_ATTEMPT']} {step}\n")
        if step % EVERY == 0:
            put(RUN / "checkpoints" / f"step_{step:08d}", trained)
    if step < STEPS:
        put(RUN / "checkpoints" / f"step_{step:08d}", trained)
        print("saved", step, flush=True)
        sys.exit(75)
    done()


if __name__ == "__main__":
    role, *words = sys.argv[1:]
    if role == "engine":
        engine(*words)
    elif role == "orchestrator":
        orchestrator(words)
    else:
        trainer(float(words[0]))

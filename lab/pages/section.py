"""Seconds and bytes of pages: of the default run, as the command makes it, and of a thousand rows made up; then what a
browser asks for when it opens one.

A page is also opened with a stranger's picture and script smuggled in, which its content security policy must stop, and
these two without the policy, to know that the browser's log would tell.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from support.races.cells import cell, document, fidelity, row

from lab.common import Bench, Table, Tables, say
from shootout.commands.report import render
from shootout.constants import MAX_RESTARTS, ROUNDS
from shootout.journal.records import Played
from shootout.messages import Scope
from shootout.page.sources import Source
from shootout.results.document import Document

RUN = Path(__file__).resolve().parents[2] / "results" / "reference" / "shootout"
SHAPES = ((1, 1_000), (10, 100), (100, 10))
"""Groups and arms of each, a thousand rows in all."""
MOST_S, MOST_BYTES, MOST_MARKDOWN = 5.0, 1_500_000, 900 * 1024
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--window-size=1280,2000"),
)
OWN = re.compile(r"^(\w+\.)*(google|googleapis|gstatic)\.com$")
"""Hosts that the browser asks for itself, whatever page is open."""
SMUGGLED = '<img src="http://example.invalid/x.png"><script src="http://example.invalid/x.js"></script>'


def figures(bench: Bench) -> Tables:
    """A row for each page, and one for each time that a browser opened one."""
    folder = bench.folder / "pages"
    folder.mkdir(parents=True, exist_ok=True)
    costs = [_command(folder / f"page{ending}") for ending in (".html", ".md", ".svg", ".png")]
    for groups, arms in SHAPES:
        found = made(groups, arms)
        source = Source(found, tuple(_journal(found)))
        costs += [_made(source, ending, f"{groups} x {arms} rows") for ending in (".html", ".md")]
    return {"pages": costs, "requests when a browser opens a page": _requests(folder)}


def made(groups: int, arms: int) -> Document:
    """A run of so many groups along the batch size, every second arm the INT8 of the one before it."""
    cells = []
    for group in range(groups):
        name = f"net, batch {group + 1}"
        rows = [
            row(
                f"runtime{arm // 2}:cpu:{('fp32', 'int8')[arm % 2]}",
                1e5 * (1 + arm % 37) * (1 + group / 9),
                group=name,
                batch=group + 1,
                artifact_bytes=4_000_000 >> 2 * (arm % 2),
                fidelity=fidelity(1e-7 * (arm + 1)),
                executed={"library": "runtime", "version": "1.2.3", "device": "cpu", "threads": 1},
            )
            for arm in range(arms)
        ]
        cells.append(cell(*rows, group=name))
    found: Document = document(*cells)
    return found


def _journal(found: Document) -> Iterator[Played]:
    """What a race of the first group would have written of its rounds, which a figure has one by one."""
    raced = [one for one in found.rows if one.group == found.answer[0].group]
    for index, one in enumerate(raced):
        for restart in range(MAX_RESTARTS):
            times = tuple(1e5 * (1 + (index + 7 * (restart + place)) % 11 / 100) for place in range(ROUNDS))
            yield Played.model_construct(
                group=one.group,
                arm=one.arm,
                restart=restart,
                block_median_ns={Scope.END_TO_END: times},
                flagged=(restart % ROUNDS,),
                served=None,
            )


def _command(out: Path) -> dict[str, object]:
    """The command on the default run, as a process of its own."""
    words = [sys.executable, "-c", "from shootout.cli import main; main()", "report", str(RUN), "-o", str(out)]
    cpu_s = _spent(lambda: subprocess.run(words, check=True, capture_output=True), resource.RUSAGE_CHILDREN)
    return _judged("shootout report, the default run", out.suffix, cpu_s, out.stat().st_size)


def _made(source: Source, ending: str, what: str) -> dict[str, object]:
    content: list[bytes] = []
    cpu_s = _spent(lambda: content.append(render([source], ending)), resource.RUSAGE_SELF)
    return _judged(what, ending, cpu_s, len(content[0]))


def _judged(what: str, ending: str, cpu_s: float, count: int) -> dict[str, object]:
    most = MOST_MARKDOWN if ending == ".md" else MOST_BYTES
    found = {"page": what, "form": ending, "cpu_s": round(cpu_s, 2), "bytes": count}
    say(f"  {found}")
    return found | {"holds": cpu_s <= MOST_S and count <= most}


def _spent(work: Callable[[], object], whose: int) -> float:
    before = resource.getrusage(whose)
    work()
    after = resource.getrusage(whose)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _requests(folder: Path) -> Table:
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        return [{"page": "none was opened", "failed": f"none of {', '.join(BROWSERS)} is here"}]
    page = (folder / "page.html").read_text()
    begin, _, end = page.partition("</main>")
    pages = {
        "as it is": (page, 0),
        "with a stranger's picture and script smuggled in": (f"{begin}{SMUGGLED}</main>{end}", 0),
        "the same two without our policy, which proves the log": (f"<!doctype html>{SMUGGLED}", 2),
    }
    return [_opened(browser, folder, name, text, expected) for name, (text, expected) in pages.items()]


def _opened(browser: str, folder: Path, name: str, text: str, expected: int) -> dict[str, object]:
    page, log = folder / "opened.html", folder / "opened.json"
    page.write_text(text)
    log.unlink(missing_ok=True)
    how = [f"--log-net-log={log}", f"--screenshot={folder / 'opened.png'}", f"--user-data-dir={folder / 'browser'}"]
    subprocess.run([browser, *FLAGS, *how, page.as_uri()], check=True, capture_output=True, timeout=120)
    urls = set(re.findall(r'"url":"(https?://[^"]+)"', log.read_text()))
    foreign = sorted(url for url in urls if not OWN.match(url.split("/")[2]))
    found = {"page": name, "requests": len(foreign), "expected": expected}
    say(f"  {found}")
    return found | {"holds": len(foreign) == expected}

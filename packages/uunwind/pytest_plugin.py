"""The pytest plugin: `pytest --uu` records the tests, and shows where the slowest ones spend their time.

It is there in every run of pytest where the package is installed, and does nothing without an option.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from typing import Any, Dict, Generator, List, NamedTuple, Tuple

import pytest

#: What a test must have of the samples to have a row of its stack, and how many rows.
SHARE, ROWS = 0.1, 8


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("uu", "profiles by uu")
    group.addoption("--uu", action="store_true", help="record the tests, and show the slowest ones with their stacks")
    group.addoption("--uu-output", metavar="FILE", default="uu-pytest.uu",
                    help="where the recording of --uu goes [default: uu-pytest.uu]")
    group.addoption("--uu-each", metavar="FOLDER", help="record each test by itself, into this folder")
    group.addoption("--uu-format", metavar="FORMAT", default="html",
                    help="what --uu-each writes: html, svg, uu, pb.gz, ... [default: html]")
    group.addoption("--uu-mode", choices=("cpu", "wall"), default="cpu",
                    help="cpu: threads that run; wall: those that wait, too [default: cpu]")
    group.addoption("--uu-rate", metavar="HZ", type=int, default=199,
                    help="samples a second, of each thread [default: 199]")
    group.addoption("--uu-slowest", metavar="N", type=int, default=5,
                    help="how many of the slowest tests --uu shows [default: 5]")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--uu"), config.getoption("--uu-each")
    # With pytest-xdist, tests run in its workers.
    runs_tests = not config.pluginmanager.has_plugin("dsession")
    if all(chosen):
        raise pytest.UsageError("--uu and --uu-each do not go together: a process has one recording at a time")
    if any(chosen) and runs_tests:
        config.pluginmanager.register((_Each if chosen[1] else _All)(config), "uunwind-profiles")


def _record(config: pytest.Config, path: str) -> Any:
    import uunwind

    return uunwind.record(path, mode=config.getoption("--uu-mode"), rate=config.getoption("--uu-rate"))


def _worker(config: pytest.Config) -> str:
    """Of pytest-xdist: what the names of this process's files have more."""
    workerinput = getattr(config, "workerinput", None)
    return "-" + workerinput["workerid"] if workerinput else ""


class _Each:
    """--uu-each: a recording for each test."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._folder = config.getoption("--uu-each")
        self._failed: List[str] = []
        self._made = 0

    def pytest_sessionstart(self) -> None:
        try:
            os.makedirs(self._folder, exist_ok=True)
        except OSError as error:
            raise pytest.UsageError("--uu-each: the folder %s cannot be made: %s" % (self._folder, error))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        import uunwind

        name = re.sub(r"[^A-Za-z0-9_.=+-]+", "-", item.nodeid.replace("::", "."))[:180].strip("-")
        end = self._config.getoption("--uu-format")
        recording = _record(self._config, os.path.join(self._folder, "%s%s.%s" % (name, _worker(self._config), end)))
        try:
            recording.start()
        except uunwind.Error as error:
            # The test runs all the same.
            self._failed.append("%s: %s" % (item.nodeid, error))
            yield
            return
        yield
        try:
            recording.stop()
            self._made += 1
        except uunwind.Error as error:
            self._failed.append("%s: %s" % (item.nodeid, error))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("uu")
        terminalreporter.line("%d profiles in %s" % (self._made, self._folder))
        for line in self._failed:
            terminalreporter.line("not recorded: " + line)


class _Test(NamedTuple):
    name: str
    begin: int
    end: int


class _All:
    """--uu: one recording of all tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        base, extension = os.path.splitext(config.getoption("--uu-output"))
        self._path = base + _worker(config) + extension
        self._tests: List[_Test] = []
        self._problem = ""

    def pytest_sessionstart(self) -> None:
        import uunwind

        if not self._path.endswith(".uu"):
            raise pytest.UsageError("--uu-output %s: give a name that ends with .uu; `uu report` and `uu view` make "
                                    "everything else of it" % self._path)
        # Times of samples are counted from the recording's start, which is known by the clock of the day.
        self._zero = time.time_ns() - time.monotonic_ns()
        self._recording = _record(self._config, self._path)
        try:
            self._recording.start()
        except uunwind.Error as error:
            raise pytest.UsageError("--uu: %s" % error)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, None]:
        begin = time.monotonic_ns()
        yield
        self._tests.append(_Test(item.nodeid, begin, time.monotonic_ns()))

    def pytest_sessionfinish(self) -> None:
        import uunwind

        try:
            self._recording.stop()
        except uunwind.Error as error:
            self._problem = str(error)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if not self._problem and self._tests:
            try:
                profile = _profile(self._path)
            except (OSError, ValueError, subprocess.CalledProcessError) as error:
                self._problem = "%s cannot be read: %s" % (self._path, error)
        terminalreporter.section("uu: slowest tests")
        if self._problem:
            terminalreporter.line(self._problem)
        elif self._tests:
            what = "CPU time" if self._config.getoption("--uu-mode") == "cpu" else "all threads"
            slowest = sorted(self._tests, key=lambda test: test.begin - test.end)
            for test in slowest[: self._config.getoption("--uu-slowest")]:
                for line in _lines(test, profile, self._zero - profile["start"], what):
                    terminalreporter.line(line)
            terminalreporter.line("all of it: uu view %s" % self._path)


def _profile(path: str) -> Dict[str, Any]:
    """The recording as JSON (docs/json.md)."""
    from uunwind import _command

    words = [_command.command(), "report", "--format", "json", path]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True, env=_command.environment())
    profile: Dict[str, Any] = json.loads(done.stdout)
    return profile


def _lines(test: _Test, profile: Dict[str, Any], offset: int, what: str) -> Generator[str, None, None]:
    """What is shown of a test. `offset` makes times of the recording of monotonic ones; `what` its samples are of."""
    stacks: Dict[Tuple[str, ...], int] = {}
    # Samples of this process only: children are another matter.
    for sample in profile["samples"]:
        if test.begin + offset <= sample["time"] < test.end + offset:
            stack = profile["stacks"][sample["stack"]]
            names = _of_test([profile["frames"][frame] for frame in reversed(stack["frames"])])
            stacks[names] = stacks.get(names, 0) + sample["weight"]
    total = sum(stacks.values())
    seconds = (test.end - test.begin) / 1e9
    yield "%.2f s  %s  (%s %.2f s)" % (seconds, test.name, what, total * profile["period"] / 1e9)
    rows: List[_Row] = []
    _descend(stacks, 0, total, rows)
    for row in rows[:ROWS]:
        path = list(row.names)
        if len(path) > 3:
            path[1:-1] = ["(%d more)" % (len(path) - 2)]
        yield "  %5.1f %%  %s%s" % (100 * row.weight / total, "  " * row.depth, " > ".join(path))
    yield ""


class _Row(NamedTuple):
    depth: int
    weight: int
    #: A function, and what it calls with all of its weight.
    names: List[str]


def _descend(stacks: Dict[Tuple[str, ...], int], depth: int, total: int, rows: List[_Row]) -> None:
    """The functions that have a share of the total, outermost first, and below each those that it calls."""
    while stacks:
        by_name: Dict[str, Dict[Tuple[str, ...], int]] = {}
        for names, weight in stacks.items():
            if names:
                inner = by_name.setdefault(names[0], {})
                inner[names[1:]] = inner.get(names[1:], 0) + weight
        heavy = [(sum(inner.values()), name) for name, inner in by_name.items()]
        heavy = sorted((entry for entry in heavy if entry[0] >= SHARE * total), reverse=True)
        if len(heavy) != 1:
            break
        weight, name = heavy[0]
        if rows and rows[-1].weight == weight and rows[-1].depth == depth - 1:
            rows[-1].names.append(name)
        else:
            rows.append(_Row(depth, weight, [name]))
            depth += 1
        stacks = by_name[name]
    else:
        return
    for weight, name in heavy:
        rows.append(_Row(depth, weight, [name]))
        _descend(by_name[name], depth + 1, total, rows)


def _of_test(frames: List[Dict[str, Any]]) -> Tuple[str, ...]:
    """The functions of a stack that pytest has called, outermost first, without pytest's own."""
    own = [index for index, frame in enumerate(frames)
           if re.search(r"[/\\](_pytest|pluggy)[/\\]", frame["file"] or "")]
    frames = frames[own[-1] + 1 :] if own else frames
    return tuple(_name(frame) for frame in frames if frame["kind"] != "remark")


def _name(frame: Dict[str, Any]) -> str:
    place = os.path.basename(frame["file"] or "")
    return "%s (%s)" % (frame["function"], place) if place else frame["function"]

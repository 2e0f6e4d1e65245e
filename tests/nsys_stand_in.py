"""Plays nsys; `tests.nsys.install` writes it beside `plays.json`. Standard library only.

It follows the program's CUDA runtime through a file of lines, which `tests.nsys_runtime` writes, as the real
one follows it by injection, and records what lies inside the capture range.

Outcomes: fine, permission (nothing runs), no_range (cudaProfilerStart is not seen), not_imported (only a
.qdstrm is left), never_ends, export_fails, export_hangs, export_damaged, silent (does not answer), daemon
(leaves a process in its own session).
"""

# ruff: noqa: PTH100, PTH113, PTH118, PTH119, PTH110, PTH120, PTH123, PTH208, T201
import ctypes
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "plays.json")) as stream:
    PLAYS = json.load(stream)
OUTCOME = PLAYS["outcome"]
VERSION = tuple(map(int, PLAYS["version"].split(".")))
SLEEPER = "import time; time.sleep(600)"
USAGE = """

usage: nsys profile [<args>] [application] [<application args>]
Try 'nsys profile --help' for more information."""
SUBREAPER = 36
TABLES = {"kernel": "CUPTI_ACTIVITY_KIND_KERNEL", "range": "NVTX_EVENTS"}


def refuse(message):
    sys.stderr.write(message + "\n")
    sys.exit(1)


def sections(text):
    """Help of each option by name."""
    parts = re.split(r"^\s*(?:-\w, )?--([a-z-]+)=", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def split(words, allowed):
    """Options and the rest; refuses what the real one refuses."""
    options = {}
    while words and words[0].startswith("-") and words[0] != "--":
        name, equals, value = words.pop(0).partition("=")
        if name[2:] not in allowed or not equals:
            refuse(f"unrecognised option '{name}{equals}{value}'{USAGE}")
        if name[2:] in options:
            refuse(f"option '{name}' cannot be specified more than once{USAGE}")
        check_value(name[2:], value, allowed[name[2:]])
        options[name[2:]] = value
    return options, words


def check_value(name, value, text):
    listed = re.search(r"Possible values are (.*?)\.(?:\s|$)", text, re.S)
    values = re.findall(r"'([^']+)'", listed[1]) if listed else []
    if values and not set(value.split(",")) <= set(values):
        listed = f"Possible --{name} values are one or more of {listed[1]}"
        refuse(f"Illegal --{name} argument '{value}'\n{listed}{USAGE}")


class Session:
    """What is recorded while the program runs."""

    def __init__(self, options, events):
        self.events = events
        self.by_range = options.get("capture-range", "none") == "cudaProfilerApi"
        self.end = options.get("capture-range-end", "stop-shutdown")
        if VERSION < (2021, 3):
            self.end = "stop-shutdown" if options.get("stop-on-range-end") == "true" else "none"
        self.kill = options.get("kill", "sigterm")
        self.recording, self.ended, self.lines = not self.by_range, False, []
        self.opened = self.recording

    def follow(self, process):
        """Read what the program's runtime reports until the program ends."""
        with open(self.events) as stream:
            rest = ""
            while True:
                running = process.poll() is None
                *lines, rest = (rest + stream.read()).split("\n")
                for line in lines:
                    self.take(line, process)
                if not running:
                    return process.returncode
                time.sleep(0.005)

    def take(self, line, process):
        if line not in ("start", "stop"):
            if self.recording:
                self.lines.append(line)
        elif not self.by_range or self.ended or OUTCOME == "no_range":
            pass
        elif line == "start" and not self.recording:
            print("Capture range started in the application.", flush=True)
            self.recording = self.opened = True
        elif line == "stop" and self.recording and self.end != "none":
            print("Capture range ended in the application.", flush=True)
            self.recording, self.ended = False, True
            if self.end == "stop-shutdown" and self.kill != "none":
                process.send_signal(getattr(signal, self.kill.upper()))


def check_program(program):
    """The program without `--`; refuses one that is missing, in the words of the version."""
    if program[:1] == ["--"]:
        if VERSION < (2024,):  # seen with 2022.4 and 2023.4
            refuse("option is ambiguous and matches 'capture-range-end', 'command-file'" + USAGE)
        program = program[1:]
    if not program:
        refuse(
            "ERROR: The collection must include one or more system-wide settings if an application is not "
            "launched." + USAGE
        )
    if shutil.which(program[0]) is None:
        missing = f"No such file or directory: {program[0]}"
        if VERSION >= (2023,):
            missing = "Executable not found in current directory or standard search paths"
        refuse(missing)
    return program


def profile(words):
    options, program = split(words, sections(PLAYS["profile"]))
    program = check_program(program)
    if OUTCOME == "permission":
        refuse("Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM" + USAGE)
    if "%" in options["output"].replace("%%", ""):  # the report has the name as it is
        sys.stderr.write(f"Substitution error in '{options['output']}': Unknown expression.\n")
    leftover = []
    if OUTCOME == "daemon":
        leftover = [subprocess.Popen([sys.executable, "-c", SLEEPER, HERE], start_new_session=True).pid]
    for what, option in (("IP/backtrace sampling", "sample"), ("context switch tracing", "cpuctxsw")):
        if options.get(option) != "none" and option in sections(PLAYS["profile"]):
            print(f"WARNING: CPU {what} not supported, disabling.")
            print("Try the 'nsys status --environment' command to learn more.\n", flush=True)
    events = os.path.join(HERE, f"events-{os.getpid()}.txt")
    open(events, "w").close()
    session = Session(options, events)
    if not session.by_range:
        print("Collecting data...", flush=True)
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    environment = {**os.environ, "NSYS_STAND_IN_EVENTS": events}
    # As the real one, it leaves its open files to the program.
    code = session.follow(subprocess.Popen(program, env=environment, close_fds=False))
    wait_for_others(leftover, all_of_them=options.get("wait", "all") == "all")
    write_report(options, session)
    if OUTCOME == "never_ends":
        time.sleep(600)
    return 128 - code if code < 0 else code


def wait_for_others(ours, *, all_of_them):
    """Wait for processes that outlive the program that started them."""
    if all_of_them and adopted(ours):
        print("The target application terminated. One or more process it created re-parented.")
        print("Waiting for termination of re-parented processes.")
        print("Use the `--wait` option to modify this behavior.", flush=True)
        while adopted(ours):
            time.sleep(0.02)


def adopted(ours):
    """Processes that the program left to this one."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if int(parent) == os.getpid() and state != "Z" and int(pid) not in ours:
            found.append(int(pid))
    return found


def write_report(options, session):
    if not session.opened:
        print("Processing events...\nGenerated:\n\tNo reports were generated")
        return
    print("Generating '/tmp/nsys-report-1f2e.qdstrm'")
    report = options["output"].replace("%%", "%")
    if OUTCOME == "not_imported":
        print("Importer error status: An unknown error occurred.")
        save(report + ".qdstrm", session.lines)
        return
    report += ".qdrep" if VERSION < (2021, 4) else ".nsys-rep"
    if options.get("force-overwrite") != "true" and os.path.exists(report):
        sys.stderr.write(f"Failed to create '{report}': File exists.\n")
        sys.stderr.write("Use `--force-overwrite true` to overwrite existing files.\n")
        report = os.path.join(tempfile.mkdtemp(), "nsys-report-9777.nsys-rep")
    save(report, session.lines)
    print(f"[1/1] [========================100%] {os.path.basename(report)}\nGenerated:\n    {report}")


def save(path, lines):
    with open(path, "w") as stream:
        json.dump(lines, stream)


def export(words):
    options, reports = split(words, sections(PLAYS["export"]))
    if options["type"] != "sqlite":
        refuse(f"Unsupported export type option: '{options['type']}'." + USAGE.replace("profile", "export"))
    if not os.path.isfile(reports[0]):
        refuse(f"Exportation error: File not found: '{reports[0]}'.")
    if OUTCOME == "export_fails":
        refuse("Processing failed.\nerror: the report was made by a newer version")
    if OUTCOME == "export_hangs":
        time.sleep(600)
    if OUTCOME == "export_damaged":
        with open(options["output"], "w") as stream:
            stream.write("not a database" * 100)
    elif PLAYS["file"]:
        shutil.copyfile(PLAYS["file"], options["output"])
    else:
        with open(reports[0]) as stream:
            write_export(options["output"], json.load(stream))
    return 0


def write_export(path, lines):
    """A table for each kind of line, with the name of each event."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        for number, line in enumerate(lines):
            kind, _, name = line.partition(" ")
            table = TABLES[kind]
            database.execute(f"CREATE TABLE IF NOT EXISTS {table} (start INTEGER, end INTEGER, text TEXT)")
            database.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", (number, number + 1, name))  # noqa: S608


def main(words):
    with open(os.path.join(HERE, "calls.jsonl"), "a") as stream:
        stream.write(json.dumps(words) + "\n")
    if OUTCOME == "silent":
        time.sleep(600)
    if words == ["--version"]:
        print(f"NVIDIA Nsight Systems version {PLAYS['version']}-233434681190v0")
        return 0
    if words[1:] == ["--help"]:
        print(PLAYS[words[0]])
        return 0
    return {"profile": profile, "export": export}[words[0]](words[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Plays nsys; `tests.nsys.install` writes it beside `plays.json`. Standard library only.

Outcomes: fine, permission (nothing runs), no_report, report_of_nothing, export_fails, export_hangs,
export_damaged, silent (does not answer), daemon (leaves a process in its own session).
"""

# ruff: noqa: PTH100, PTH113, PTH118, PTH119, PTH120, PTH123, T201
import json
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "plays.json")) as stream:
    PLAYS = json.load(stream)
OUTCOME = PLAYS["outcome"]
SLEEPER = "import time; time.sleep(600)"


def refuse(message):
    sys.stderr.write(message + "\n")
    sys.exit(1)


def names(text):
    return re.findall(r"^\s*(?:-\w, )?--([a-z-]+)=", text, re.MULTILINE)


def split(words, allowed):
    """Options and the rest; refuses what the real one refuses."""
    options = {}
    while words and words[0].startswith("-"):
        name, equals, value = words.pop(0).partition("=")
        if name[2:] not in allowed or not equals:
            refuse(f"unrecognised option '{name}'")
        options[name[2:]] = value
    return options, words


def check_values(options):
    for name, value in options.items():
        section = re.search(
            rf"--{name}=\s(.*?)(?=^\s*(?:-\w, )?--[a-z-]+=|\Z)", PLAYS["profile"], re.S | re.M
        )
        values = re.findall(r"[\w-]+", section[1]) if "Possible values" in section[1] else None
        if values is not None and not set(value.split(",")) <= set(values):
            refuse(f"Illegal --{name} argument: {value}")


def profile(words):
    options, program = split(words, names(PLAYS["profile"]))
    check_values(options)
    if not program:
        refuse("No application specified")
    if OUTCOME == "permission":
        refuse("Insufficient privilege, see https://developer.nvidia.com/ERR_NVGPUCTRPERM")
    if OUTCOME == "daemon":
        subprocess.Popen([sys.executable, "-c", SLEEPER, HERE], start_new_session=True)
    print("Collecting data...", flush=True)
    code = subprocess.run(program).returncode
    if OUTCOME == "no_report":
        print("The capture range was never started.\nNo reports were generated.")
        return code
    print("Generating '/tmp/nsys-report-1f2e.qdstrm'")
    old = PLAYS["version"] < "2021.4"
    if "%" in options["output"].replace("%%", ""):
        refuse("Unknown macro in --output")
    report = options["output"].replace("%%", "%") + (".qdrep" if old else ".nsys-rep")
    with open(report, "w") as stream:
        stream.write("report")
    print(f"[1/1] [========================100%] {os.path.basename(report)}\nGenerated:\n    {report}")
    return 128 - code if code < 0 else code


def export(words):
    options, reports = split(words, names(PLAYS["export"]))
    if options["type"] != "sqlite" or len(reports) != 1 or not os.path.isfile(reports[0]):
        refuse("Illegal export")
    if OUTCOME == "export_fails":
        refuse("Processing failed.\nerror: the report was made by a newer version")
    if OUTCOME == "export_hangs":
        time.sleep(600)
    if OUTCOME == "export_damaged":
        with open(options["output"], "w") as stream:
            stream.write("not a database" * 100)
    else:
        shutil.copyfile(PLAYS["file"], options["output"])
    return 0


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

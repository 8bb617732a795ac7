# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-test sanity without network access except a package index.

What else ansible-test needs, and how this script provides it:

- a checkout at .../ansible_collections/qemu_scheduler/proxmox that is no symlink and is a git repository: a copy;
- pip's bootstrap script from the network: a stand-in that copies the pip of .venv, ten times as fast as ensurepip;
- the machine's settings of pip, which it hides from its subprocesses: written into the home folder that they get;
- interpreters on PATH that really run, not a version manager's shims.

All of it, with the virtual environments that ansible-test keeps between runs, lives in .venv/sanity.
Arguments are passed on: hack/sanity.py --test validate-modules
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from ansible_test._internal import python_requirements
from ansible_test._internal.constants import SUPPORTED_PYTHON_VERSIONS

CHECKOUT = Path(__file__).resolve().parent.parent
ROOT = CHECKOUT / ".venv" / "sanity"
COPY = ROOT / "ansible_collections" / "qemu_scheduler" / "proxmox"
HOME = ROOT / "home"

# Tests that cannot run everywhere: the program that each needs, and why leaving it out hides nothing.
NEEDED_PROGRAMS = {
    "pslint": ("pwsh", "PowerShell is in no package index, and the collection has no PowerShell"),
}

# Only the content of the tarball is checked, as on Galaxy; the project's own linters check the rest.
NOT_SHIPPED = ("bench", "demo", "hack")
# The part of the tests folder that ansible-test reads.
SETTINGS = ("sanity",)

# Lines of ansible-test that do not concern the collection.
NOISE = (
    "Installing requirements for Python ",
    "Running sanity test ",
    "Using cached pip ",
    'WARNING: Using locale "C.UTF-8"',
    "WARNING: Reviewing previous 1 warning(s):",
)

BOOTSTRAP_STAND_IN = """\
import shutil
import sysconfig

for folder in {folders}:
    shutil.copytree(folder, sysconfig.get_path("purelib") + "/" + folder.rpartition("/")[2])
"""


def main(arguments: list[str]) -> int:
    """Run the tests named by `arguments` (all by default) and return ansible-test's exit status."""
    interpreters = find_interpreters()
    copy_checkout()
    write_bootstrap_stand_ins()
    write_pip_settings()
    left_out = {test: why for test, (program, why) in NEEDED_PROGRAMS.items() if shutil.which(program) is None}
    for test, why in left_out.items():
        print(f"left out: {test}: {why}", flush=True)
    folders = [sys.prefix + "/bin", *(str(path.parent) for path in interpreters)]
    environment = {
        **os.environ,
        "HOME": str(HOME),
        "PATH": os.pathsep.join([*folders, os.environ["PATH"]]),
        "LC_ALL": "C.UTF-8",
    }
    skips = [argument for test in left_out for argument in ("--skip-test", test)]
    targets = [argument for path in interpreters for argument in ("--target-python", f"{minor_version(path)}@{path}")]
    command = [sys.prefix + "/bin/ansible-test", "sanity", "--color", "no", *targets, *skips, *arguments]
    return run_quietly(command, environment)


def run_quietly(command: list[str], environment: dict[str, str]) -> int:
    """Run ansible-test, print what it finds, count what it runs, and return its exit status."""
    count = 0
    with subprocess.Popen(
        command, cwd=COPY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        for line in process.stdout or ():
            count += line.startswith("Running sanity test ")
            if not line.startswith(NOISE):
                print(line, end="", flush=True)
    if process.returncode == 0:
        print(f"{count} sanity tests passed")
    return process.returncode


def find_interpreters() -> list[Path]:
    """Return the oldest and the newest interpreter of those that the other scripts find and this ansible-core knows.

    What compiles and is imported with both does so with those in between, each of which would take half a minute. The
    version of .venv is left out if there is another: all other tests import everything with it.
    """
    script = 'source "$0/hack/common.sh"; interpreters'
    found = subprocess.run(["bash", "-c", script, CHECKOUT], check=True, capture_output=True, text=True)
    paths = [Path(line) for line in found.stdout.splitlines()]
    known = [path for path in paths if minor_version(path) in SUPPORTED_PYTHON_VERSIONS]
    outermost = sorted({known[0], known[-1]}, key=known.index)
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    return [path for path in outermost if minor_version(path) != own] or outermost


def minor_version(interpreter: Path) -> str:
    """Return "3.12" for .../bin/python3.12."""
    return interpreter.name.removeprefix("python")


def copy_checkout() -> None:
    """Copy what is shipped, as it is now, and make it a repository: ansible-test lists files with git."""
    script = 'source "$0/hack/common.sh"; copy_checkout "$1"'
    subprocess.run(["bash", "-c", script, CHECKOUT, COPY], check=True)
    for path in [*(COPY / name for name in NOT_SHIPPED), *(COPY / "tests").iterdir()]:
        if path.is_dir() and path.name not in SETTINGS:
            shutil.rmtree(path)
    subprocess.run(["git", "init", "--quiet"], cwd=COPY, check=True)


def write_bootstrap_stand_ins() -> None:
    """Put a stand-in where ansible-test looks first, for each version of pip that this ansible-core asks for.

    Each test has a virtual environment of its own, and a pip in it.
    """
    cache = HOME / ".ansible" / "test" / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    source = Path(python_requirements.__file__).read_text(encoding="utf-8")
    versions = set(re.findall(r"pip='([\d.]+)'", source))
    if not versions:
        raise SystemExit("This ansible-core names its version of pip elsewhere: hack/sanity.py must learn where.")
    pip = metadata.distribution("pip")
    folders = [str(pip.locate_file(name)) for name in ("pip", f"pip-{pip.version}.dist-info")]
    for version in versions:
        script = cache / f"get_pip_{version.replace('.', '_')}.py"
        script.write_text(BOOTSTRAP_STAND_IN.format(folders=folders), encoding="utf-8")


def write_pip_settings() -> None:
    """Write the settings from the machine's files and environment as the one file that pip reads in HOME."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    settings = {"quiet": "2", "no-compile": "true"}
    for line in listed.splitlines():
        key, value = line.split("=", 1)
        section, name = key.rsplit(".", 1)
        # Listed in the order of precedence: the environment last.
        if section in ("global", ":env:"):
            settings[name] = ast.literal_eval(value)
    config = HOME / ".config" / "pip" / "pip.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.touch(mode=0o600)  # the address of an index may carry a password
    lines = [f"{name} = {' '.join(value.split())}\n" for name, value in sorted(settings.items())]
    config.write_text("[global]\n" + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

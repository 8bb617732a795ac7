# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Making a release: what is refused, and what a dry run in a clone of this checkout makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml
from support.pages import CHECKOUT, links

NEXT = "99.0.0"


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This checkout as it is now, almost without its tests, committed to a repository of its own."""
    here = tmp_path / "checkout"
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", ":!tests"],
        cwd=CHECKOUT, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    for name in (*filter(None, listed.split("\0")), "tests/config.yml", "tests/conftest.py"):
        if (CHECKOUT / name).exists():
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(CHECKOUT / name, here / name)
    (here / ".venv").symlink_to(CHECKOUT / ".venv")
    for command in ("init --quiet", "config user.name tester", "config user.email tester@example.com"):
        subprocess.run(["git", *command.split()], cwd=here, check=True)
    commit(here)
    return here


def commit(here: Path) -> None:
    subprocess.run(["git", "add", "--all"], cwd=here, check=True)
    subprocess.run(["git", "commit", "--quiet", "--message", "x"], cwd=here, check=True)


def git(here: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=here, capture_output=True, text=True, check=True).stdout


def release(here: Path, version: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run what C(make release) runs after its setup, which the clone shares with this checkout."""
    return subprocess.run(
        ["hack/release.sh", version],
        cwd=here, env={**os.environ, **env}, capture_output=True, text=True, check=False, timeout=3000,
    )  # fmt: skip


def make_publishable(here: Path, documentation: str = "/docs/index.md") -> None:
    """Fill in the placeholders, and add a fragment that a release needs."""
    galaxy = here / "galaxy.yml"
    text = (CHECKOUT / "galaxy.yml").read_text(encoding="utf-8").replace("example.org", "host.invalid")
    galaxy.write_text(text.replace("/docs/index.md", documentation), encoding="utf-8")
    fragment = here / "changelogs" / "fragments" / "summary.yml"
    fragment.write_text("release_summary: A test.\nbugfixes:\n  - Something.\n", encoding="utf-8")
    commit(here)


def test_release__is_refused_while_something_is_missing(clone: Path) -> None:
    def refusal(version: str = NEXT) -> str:
        done = release(clone, version)
        assert done.returncode != 0
        return done.stderr

    assert "replace the placeholders in galaxy.yml" in refusal()
    assert "usage: make release VERSION=x.y.z" in refusal("1.0")
    make_publishable(clone, documentation="/pages")
    assert "documentation in galaxy.yml is not the address of docs/index.md" in refusal()
    make_publishable(clone)
    assert "is not newer than" in refusal("0.9.0")
    fragment = clone / "changelogs" / "fragments" / "break.yaml"
    fragment.write_text("breaking_changes:\n  - Something.\n", encoding="utf-8")
    commit(clone)
    assert "fragments with breaking_changes need a major version" in refusal("1.99.0")
    (clone / "stray.txt").write_text("x", encoding="utf-8")
    assert "changes that are not committed: ?? stray.txt" in refusal()
    (clone / "stray.txt").unlink()
    git(clone, "tag", f"v{NEXT}")
    assert f"the tag v{NEXT} exists" in refusal()


def test_dry_run__makes_the_release_in_a_copy(clone: Path) -> None:
    make_publishable(clone)
    before = git(clone, "rev-parse", "HEAD")
    done = release(clone, NEXT, DRY_RUN="1")
    assert done.returncode == 0, done.stderr
    assert f"v{NEXT} is ready" in done.stdout
    assert f"ansible-galaxy collection publish build/qemu_scheduler-proxmox-{NEXT}.tar.gz" in done.stdout
    assert git(clone, "rev-parse", "HEAD") == before
    assert git(clone, "status", "--porcelain") == git(clone, "tag") == ""


def test_release__is_a_commit_a_tag_and_a_tarball(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_publishable(clone)
    # Linters and importer have tests and targets of their own.
    monkeypatch.setenv("RELEASE_IN_COPY", "1")
    done = release(clone, NEXT)
    assert done.returncode == 0, done.stderr
    assert git(clone, "log", "-1", "--format=%s").strip() == f"Release {NEXT}"
    assert git(clone, "tag").strip() == f"v{NEXT}"
    assert yaml.safe_load((clone / "galaxy.yml").read_text(encoding="utf-8"))["version"] == NEXT
    assert NEXT in (clone / "CHANGELOG.md").read_text(encoding="utf-8").replace("\\", "")
    assert list((clone / "changelogs" / "fragments").glob("*.yml")) == []
    assert "https://git.host.invalid/" in (clone / "README.md").read_text(encoding="utf-8")
    with tarfile.open(clone / "build" / f"qemu_scheduler-proxmox-{NEXT}.tar.gz") as tarball:
        names = tarball.getnames()
        tarball.extract("README.md", clone / "build", filter="data")
    assert "docs/schemas/vms.json" in names
    assert not {name for name in names if name.startswith(("hack", ".github"))}
    assert {name for name in names if name.startswith("tests")} == {"tests", "tests/config.yml"}
    # Automation Hub shows the page alone.
    shown = set(links(clone / "build" / "README.md"))
    assert "https://git.host.invalid/qemu_scheduler/proxmox/docs/operating.md#permissions" in shown
    assert {link for link in shown if "://" not in link and not link.startswith("#")} == set()
    assert f"the tag v{NEXT} exists" in release(clone, NEXT).stderr

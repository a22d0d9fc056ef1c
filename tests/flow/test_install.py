"""The README names what building takes, `cmake --install` puts every file in its place, and the unit runs that binary."""

import os
import re
import shutil
import subprocess

import pytest

from lib.devserver import DEVSERVER, ROOT

INSTALLED = ["bin/denpyo", "lib/systemd/system/denpyo.service", "share/denpyo/config.schema.json", "share/man/man1/denpyo.1"]


@pytest.fixture(scope="module")
def prefix(denpyo, folders):
    folder = folders.new("install")
    done = subprocess.run(["cmake", "--install", os.path.dirname(denpyo), "--prefix", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_every_file_is_installed(prefix):
    assert sorted(str(path.relative_to(prefix)) for path in prefix.rglob("*") if path.is_file()) == INSTALLED


def test_the_unit_differs_from_the_repositorys_in_the_binarys_path_alone(prefix):
    ours, installed = (path.read_text() for path in (ROOT / "deploy/denpyo.service", prefix / INSTALLED[1]))
    assert f"\nExecStart={prefix}/bin/denpyo run --config /etc/denpyo.json\n" in installed
    assert installed.replace(f"{prefix}/bin/denpyo", "/usr/bin/denpyo") == ours


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_unit(prefix):
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", prefix / INSTALLED[1]], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_readme_lists_the_packages_for_building():
    listed = re.search(r"Building takes these packages [^`]*`([^`]+)`", (ROOT / "README.md").read_text())[1]
    printed = subprocess.run([DEVSERVER, "packages", "--print", "build"], capture_output=True, text=True, check=True).stdout
    assert listed.split() == printed.split()

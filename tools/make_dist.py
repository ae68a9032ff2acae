"""Builds the wheels and source distributions of both projects, the same bytes each time.

`make dist` runs it on what is committed. The wheel is built from the source distribution, so
that one is known to be whole; the other has every file in its one order, with the commit's
time and nobody's name. Nothing is fetched: setuptools is this environment's.
"""

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECTS = (".", "client")
OFFLINE = ("--offline", "--no-build-isolation", "--no-create-gitignore", "--quiet")


def build(tree: Path, target: Path, epoch: int, projects: tuple[str, ...] = PROJECTS) -> list[Path]:
    """Builds `tree`, which is written into, and returns the files made in `target`.

    `epoch` is the time that everything in them has, in Unix seconds. Raises CalledProcessError.
    """
    made = []
    for project in projects:
        with tempfile.TemporaryDirectory() as scratch:
            _uv_build("--sdist", tree / project, Path(scratch), epoch)
            (sdist,) = Path(scratch).glob("*.tar.gz")
            normalise(sdist, epoch)
            _uv_build("--wheel", sdist, Path(scratch), epoch)
            (wheel,) = Path(scratch).glob("*.whl")
            target.mkdir(parents=True, exist_ok=True)
            made += [Path(shutil.move(file, target / file.name)) for file in (sdist, wheel)]
    return made


def normalise(sdist: Path, epoch: int) -> None:
    """Writes a .tar.gz anew: members by name, owned by nobody, of one time, with plain modes."""
    packed = io.BytesIO()
    with (
        tarfile.open(sdist) as old,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            plain = tarfile.TarInfo(member.name)
            plain.type, plain.size, plain.mtime = member.type, member.size, epoch
            plain.mode = 0o755 if member.isdir() else 0o644
            new.addfile(plain, old.extractfile(member) if member.isfile() else None)
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch))


def _uv_build(kind: str, source: Path, target: Path, epoch: int) -> None:
    uv = Path(sys.executable).with_name("uv")
    words = [uv, "build", kind, *OFFLINE, "--python", sys.executable, "--out-dir", target, source]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(words, env=environment, check=True, umask=0o022)  # modes are kept in wheels


def main() -> None:
    target = ROOT / "dist"
    shutil.rmtree(target, ignore_errors=True)
    epoch = int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=ROOT)
        with tarfile.open(fileobj=io.BytesIO(archive)) as committed:
            committed.extractall(scratch, filter="data")
        for file in build(Path(scratch), target, epoch):
            print(file.relative_to(ROOT))


if __name__ == "__main__":
    main()

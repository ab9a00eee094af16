"""Archives: read like folders; nothing is ever written outside, and bombs are named before they go off."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from data_pictures import contents, pictures

from laworder.cli import main
from laworder.data.archives import MAX_RATIO, unpack
from laworder.errors import UserError

Build = Callable[[Path], None]


def zipped(*entries: tuple[str, bytes], mode: int | None = None) -> Build:
    def build(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("images/fine.png", os.urandom(64))
            for name, content in entries:
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = (mode or 0) << 16
                file.writestr(info, content)

    return build


def tarred(*entries: tuple[str, bytes], kind: bytes = tarfile.REGTYPE, link: str = "") -> Build:
    def build(path: Path) -> None:
        with tarfile.open(path, "w:gz") as file:
            fine = tarfile.TarInfo("images/fine.png")
            fine.size = 64
            file.addfile(fine, io.BytesIO(os.urandom(64)))
            for name, content in entries:
                info = tarfile.TarInfo(name)
                info.type, info.linkname, info.size = kind, link, len(content)
                file.addfile(info, io.BytesIO(content))

    return build


EVIL: dict[str, tuple[str, Build, str]] = {
    "zip dots": ("a.zip", zipped(("../evil", b"x")), "'../evil' would be written outside"),
    "zip dots inside": ("a.zip", zipped(("images/../../evil", b"x")), "'images/../../evil' would be written outside"),
    "zip backslashes": ("a.zip", zipped(("..\\evil", b"x")), "would be written outside"),
    "zip absolute": ("a.zip", zipped(("/tmp/evil", b"x")), "'/tmp/evil' would be written outside"),
    "zip drive": ("a.zip", zipped(("C:evil", b"x")), "'C:evil' would be written outside"),
    "zip folder": ("a.zip", zipped(("../evil/", b"")), "would be written outside"),
    "zip link": ("a.zip", zipped(("evil", b"/etc"), mode=stat.S_IFLNK | 0o777), "'evil' is a link or a device"),
    "zip bomb": ("a.zip", zipped(("evil.png", bytes(2_000_000))), "'evil.png' expands from .* to 2,000,000 bytes"),
    "zip twice": ("a.zip", zipped(("IMAGES/fine.png", b"x")), "is in it twice"),
    "zip no name": ("a.zip", zipped((".", b"x")), "'.' has no name"),
    "zip empty name": ("a.zip", zipped(("", b"x")), "'' has no name"),
    "zip long name": ("a.zip", zipped(("n" * 300, b"x")), "'n*' has a name of more than 255 bytes"),
    "zip file in a file": ("a.zip", zipped(("images/fine.png/evil", b"x")), "evil' is a file and a folder at once"),
    "zip file for a folder": ("a.zip", zipped(("Images", b"x")), "'Images' is a file and a folder at once"),
    "zip many small bombs": (
        "a.zip",
        zipped(*((f"{i}.png", bytes(60_000)) for i in range(300))),
        f"brings the whole to more than {MAX_RATIO} times",
    ),
    "tar dots": ("a.tar.gz", tarred(("../evil", b"x")), "'../evil' would be written outside"),
    "tar absolute": ("a.tgz", tarred(("/tmp/evil", b"x")), "'/tmp/evil' would be written outside"),
    "tar file in a file": ("a.tgz", tarred(("images/fine.png/evil", b"x")), "evil' is a file and a folder at once"),
    "tar folder": ("a.tgz", tarred(("../evil", b""), kind=tarfile.DIRTYPE), "would be written outside"),
    "tar symlink": ("a.tar.gz", tarred(("evil", b""), kind=tarfile.SYMTYPE, link="/etc"), "'evil' is a link"),
    "tar hard link": ("a.tar.gz", tarred(("evil", b""), kind=tarfile.LNKTYPE, link="/etc/passwd"), "'evil' is a link"),
    "tar pipe": ("a.tar.gz", tarred(("evil", b""), kind=tarfile.FIFOTYPE), "'evil' is a link, a device"),
    "tar device": ("a.tar.gz", tarred(("evil", b""), kind=tarfile.CHRTYPE), "'evil' is a link, a device"),
    "tar bomb": ("a.tar.gz", tarred(("evil.png", bytes(5_000_000))), "'evil.png' brings the whole to more than"),
}


@pytest.mark.parametrize("name", EVIL)
def test_refused_by_name_with_nothing_written(tmp_path: Path, name: str) -> None:
    file, build, message = EVIL[name]
    home = tmp_path / "deep" / "home"
    home.mkdir(parents=True)
    build(home / file)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UserError, match=message) as caught:
        unpack(home / file, home / "to")
    assert file in str(caught.value)
    assert "nothing was written" in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/evil").exists()


def test_a_sparse_tar_is_refused(tmp_path: Path) -> None:
    # GNU's old sparse format: a header that claims a megabyte, of which nothing is stored.
    header = bytearray(tarfile.TarInfo("evil.png").tobuf(tarfile.GNU_FORMAT))
    header[156:157] = b"S"
    header[483:495] = b"00004000000\0"
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header[:512]):06o}\0 ".encode()
    (tmp_path / "a.tar").write_bytes(bytes(header) + bytes(1024))
    with pytest.raises(UserError, match=r"evil\.png"):
        unpack(tmp_path / "a.tar", tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_sizes_that_lie_are_found_while_writing(tmp_path: Path) -> None:
    """A zip whose directory says 100 bytes for an entry that holds 3,000,000."""
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("evil.png", bytes(3_000_000))
        file.writestr("rest.png", os.urandom(60_000))
    data = path.read_bytes()
    path.write_bytes(data.replace((3_000_000).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    with pytest.raises(UserError, match=r"a.zip: "):
        unpack(path, tmp_path / "to")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.zip"]


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_damaged_archives_are_named(tmp_path: Path, kind: str) -> None:
    source = pictures(tmp_path / "from")
    whole = packed(source, tmp_path / f"whole.{kind}")
    data = whole.read_bytes()
    for number, broken in enumerate((data[:200], data[: len(data) // 2], b"", b"hello" * 99, data[:600] + data[900:])):
        file = tmp_path / f"broken{number}.{kind}"
        file.write_bytes(broken)
        with pytest.raises(UserError, match=f"broken{number}.{kind}"):
            unpack(file, tmp_path / "to")
        assert not (tmp_path / "to").exists()
        assert not (tmp_path / "to.partial").exists()


def packed(source: Path, archive: Path) -> Path:
    """The folder in an archive of the kind that the name says, inside a folder of its own."""
    files = sorted(file for file in source.rglob("*") if file.is_file())
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as out:
            for file in files:
                out.write(file, Path("download") / file.relative_to(source))
        return archive
    mode = "w" if archive.suffix == ".tar" else f"w:{archive.suffix[1:]}"
    with tarfile.open(archive, mode) as out:
        for file in files:
            out.add(file, Path("download") / file.relative_to(source))
    return archive


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"])
def test_an_archive_gives_what_its_folder_gives(tmp_path: Path, kind: str) -> None:
    source = pictures(tmp_path / "download")
    archive = packed(source, tmp_path / f"data.{kind}")
    for origin, to in ((tmp_path / "download", "a"), (archive, "b"), (archive, "b")):
        assert main(["data", "prepare", "folder", "--from", str(origin), "--to", str(tmp_path / to)]) == 0
    plain, unpacked = contents(tmp_path / "a"), contents(tmp_path / "b")
    assert sorted(p.name for p in (tmp_path / "b").iterdir() if p.name not in {"lock", "journal.jsonl"}) == [
        "dataset.json", "images", "masks"
    ]  # fmt: skip
    assert {k.replace("download__", ""): v for k, v in unpacked.items() if k != "dataset.json"} == {
        k: v for k, v in plain.items() if k != "dataset.json"
    }


def test_an_unpacked_archive_is_found_again_and_a_changed_one_is_not(tmp_path: Path) -> None:
    source = pictures(tmp_path / "from")
    archive = packed(source, tmp_path / "data.zip")
    first = unpack(archive, tmp_path / "to")
    marked = first / "download" / "images" / "p0.png"
    marked.write_bytes(b"touched")
    assert unpack(archive, tmp_path / "to") == first
    assert marked.read_bytes() == b"touched"
    (source / "images" / "p0.png").write_bytes(b"another")
    packed(source, archive)
    unpack(archive, tmp_path / "to")
    assert marked.read_bytes() == b"another"


def test_a_password_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("locked.png", b"x" * 50)
    data = bytearray(path.read_bytes())
    for mark in (b"PK\x03\x04", b"PK\x01\x02"):
        data[data.index(mark) + (6 if mark == b"PK\x03\x04" else 8)] |= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"'locked.png' is locked with a password"):
        unpack(path, tmp_path / "to")

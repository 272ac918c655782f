"""Finding files: packed and unpacked, in folders and archives, and what is said when something is wrong."""

import gzip
import tarfile

import numpy as np
import pytest

from aggmo.lab.data import cifar10, cifar100, mnist, ptb
from aggmo.lab.data.description import DataError
from aggmo.lab.data.store import Original, Store

TWO = Original("two", ("a.bin", "b.bin"), ("folder", "other"), ("two.tar.gz", "two.tar"), ())
FILES = {"a.bin": b"first", "b.bin": b"second"}


def contents(store, original=TWO):
    return {name: member.content for name, member in store.read(original).items()}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("folder", [".", "folder", "other"])
def test_files_are_found_packed_and_unpacked(tmp_path, tiny, folder, packed):
    tiny.write(tmp_path / folder, FILES, packed=packed)
    assert contents(Store(tmp_path)) == FILES


@pytest.mark.parametrize(("archive", "mode"), [("two.tar.gz", "w:gz"), ("two.tar", "w")])
@pytest.mark.parametrize("folder", [".", "folder"])
def test_files_are_found_in_an_archive(tmp_path, tiny, folder, archive, mode):
    tiny.write_tar(tmp_path / folder / archive, FILES | {"readme.html": b"x"}, "inner/folder", mode)
    assert contents(Store(tmp_path)) == FILES
    assert sorted(path.name for path in (tmp_path / folder).iterdir()) == [archive]  # nothing is unpacked to disk


def test_a_gzip_stream_is_known_by_its_content(tmp_path):
    """Some servers and browsers take the suffix off and leave the compression."""
    (tmp_path / "a.bin").write_bytes(gzip.compress(b"first"))
    (tmp_path / "b.bin.gz").write_bytes(b"second")
    assert contents(Store(tmp_path)) == FILES


def test_two_copies_are_not_mixed(tmp_path, tiny):
    tiny.write(tmp_path / "folder", {"a.bin": b"whole a", "b.bin": b"whole b"})
    tiny.write(tmp_path / "other", FILES)
    assert contents(Store(tmp_path)) == {"a.bin": b"whole a", "b.bin": b"whole b"}
    (tmp_path / "folder" / "b.bin").unlink()
    with pytest.raises(DataError, match=r"folder: b\.bin of two is missing; add the published file"):
        Store(tmp_path).read(TWO)


def test_optional_members_may_be_missing(tmp_path, tiny):
    tiny.write(tmp_path, {"a.bin": b"first"})
    optional = Original("two", ("a.bin", "b.bin"), ("folder",), (), (), optional=("b.bin",))
    assert contents(Store(tmp_path), optional) == {"a.bin": b"first"}


@pytest.mark.parametrize("original", [mnist.ORIGINAL, cifar10.ORIGINAL, cifar100.ORIGINAL, ptb.ORIGINAL])
def test_an_empty_directory(tmp_path, original):
    with pytest.raises(DataError) as caught:
        Store(tmp_path).read(original)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(
        f"{tmp_path}: no {original.members[0]} of {original.name} here, in {original.folders[0]}/"
    )
    assert message.endswith("put the published files there, packed or unpacked")


def test_no_directory(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such directory; give --data-dir one"):
        Store(tmp_path / "nowhere")


def one_line(store):
    """The message of the error that reading raises, which has one line."""
    with pytest.raises(DataError) as caught:
        store.read(TWO)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_gzip_file_cut_off(tmp_path, tiny):
    tiny.write(tmp_path, FILES, packed=True)
    path = tmp_path / "b.bin.gz"
    path.write_bytes(path.read_bytes()[:-9])
    message = one_line(Store(tmp_path))
    assert message.startswith(f"{path}: corrupt or cut off (")
    assert message.endswith("; replace it with the published file")


def test_a_gzip_file_with_a_wrong_byte(tmp_path, tiny):
    tiny.write(tmp_path, FILES, packed=True)
    path = tmp_path / "b.bin.gz"
    content = bytearray(path.read_bytes())
    content[-6] ^= 1  # of the checksum
    path.write_bytes(content)
    assert one_line(Store(tmp_path)).startswith(f"{path}: corrupt or cut off (CRC check failed")


@pytest.mark.parametrize("position", ["cut off", 5_000, -5])
def test_a_broken_archive(tmp_path, tiny, position):
    """Noise cannot be compressed, so that only gzip's checksum at the end betrays a wrong byte in it."""
    path = tmp_path / "two.tar.gz"
    tiny.write_tar(path, {"a.bin": np.random.default_rng(0).bytes(10_000), "b.bin": b"second"}, "x")
    content = bytearray(path.read_bytes())
    if position == "cut off":
        del content[-40:]
    else:
        content[position] ^= 1
    path.write_bytes(content)
    assert one_line(Store(tmp_path)).startswith(f"{path}: corrupt or cut off (")


def test_an_archive_that_is_none(tmp_path):
    (tmp_path / "two.tar").write_bytes(b"<html>not found</html>")
    assert one_line(Store(tmp_path)).startswith(f"{tmp_path / 'two.tar'}: corrupt or cut off (")


def test_an_archive_without_a_member(tmp_path, tiny):
    tiny.write_tar(tmp_path / "two.tar.gz", {"a.bin": b"first"}, "x")
    assert "b.bin of two is missing" in one_line(Store(tmp_path))


def test_links_in_an_archive_are_not_followed(tmp_path, tiny):
    tiny.write(tmp_path, {"secret": b"secret"})
    with tarfile.open(tmp_path / "two.tar", "w") as archive:
        for name in FILES:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
            archive.addfile(entry)
    assert "a.bin of two is missing" in one_line(Store(tmp_path))


def test_a_file_that_cannot_be_read(tmp_path, tiny, monkeypatch):
    tiny.write(tmp_path, FILES)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.read_bytes", refuse)  # the tests may run as root, who may read everything
    assert one_line(Store(tmp_path)).startswith(f"{tmp_path / 'a.bin'}: cannot be read (Permission denied);")


def test_sources():
    assert Store().source == "download"
    assert Store(".").source == "data-dir"
    assert Store(embedded=True).source == "embedded"


def test_the_cache_is_the_user_s(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Store().cache_dir == tmp_path / "aggmo"


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"data_dir=.* beside embedded=True"):
        Store(tmp_path, embedded=True)
    with pytest.raises(ValueError, match=r"mirrors: 'example\.org' must start with http"):
        Store(mirrors=["example.org"])

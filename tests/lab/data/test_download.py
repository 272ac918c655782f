"""Downloads from a real server on this machine that serves, cuts off, lies and hangs up."""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from aggmo.lab.data import download
from aggmo.lab.data.description import DataError
from aggmo.lab.data.download import Download, fetch
from aggmo.lab.data.store import Original, Store

CONTENT = bytes(range(256)) * 1200  # 300 kB, several pieces
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """The first part of the path says what happens."""

    def do_GET(self):
        manner = self.path.split("/")[1]
        self.server.asked.append(self.path)
        if manner == "missing":
            self.send_error(404)
            return
        body = {"wrong": CONTENT[::-1], "short": CONTENT[:1000], "empty": b""}.get(manner, CONTENT)
        self.send_response(200)
        if manner != "endless":  # whose end is that of the connection
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = len(body) // 2 if manner in ("truncated", "endless", "stalled") else len(body)
        self.wfile.write(body[:half])
        if manner == "stalled":
            self.server.released.wait(20)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as served:
        served.asked, served.released = [], threading.Event()
        thread = threading.Thread(target=served.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        served.released.set()
        served.shutdown()
        thread.join()


@pytest.fixture
def at(server):
    """The address of the file, served in a manner."""
    return lambda manner: f"http://127.0.0.1:{server.server_port}/{manner}/data.bin"


def file(*addresses, sha256=SHA256):
    return Download("data.bin", sha256, addresses)


def refused(directory, *addresses, **options):
    """The message of the error, in one line, after which the cache is empty."""
    with pytest.raises(DataError) as caught:
        fetch(file(*addresses), directory, **options)
    assert "\n" not in str(caught.value)
    assert not directory.exists() or list(directory.iterdir()) == []
    return str(caught.value)


def test_a_download_is_kept(tmp_path, at, server):
    path = fetch(file(at("good")), tmp_path / "new")
    assert path == tmp_path / "new" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert fetch(file(at("good")), tmp_path / "new") == path
    assert server.asked == ["/good/data.bin"]
    assert list((tmp_path / "new").iterdir()) == [path]


@pytest.mark.parametrize(
    ("manner", "reason"),
    [
        ("missing", "404 Not Found"),
        ("truncated", "the connection broke off"),
        ("endless", "wrong checksum"),  # nothing says how long it should have been
        ("short", "wrong checksum"),
        ("empty", "wrong checksum"),
        ("wrong", "wrong checksum"),
    ],
)
def test_a_bad_answer(tmp_path, at, server, manner, reason):
    message = refused(tmp_path / "cache", at(manner))
    assert message == (
        f"{tmp_path / 'cache' / 'data.bin'}: could not be downloaded (127.0.0.1:{server.server_port}: {reason});"
        " check the network and try again, or give --data-dir a directory that holds data.bin"
    )


def test_a_server_that_stalls(tmp_path, at, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", (1.0, 0.2))
    assert "no connection)" in refused(tmp_path, at("stalled"))


def test_a_server_that_never_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", (1.0, 0.2))
    monkeypatch.setenv("NO_PROXY", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as silent:  # accepts in its backlog, and nobody serves
        message = refused(tmp_path, f"http://127.0.0.1:{silent.server_port}/data.bin")
    assert "no answer in time" in message


def test_no_network(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as closed:
        port = closed.server_port
    assert f"(127.0.0.1:{port}: no connection)" in refused(tmp_path, f"http://127.0.0.1:{port}/data.bin")


def test_the_next_address_is_tried(tmp_path, at, server):
    manners = ["missing", "truncated", "wrong", "good", "never"]
    assert fetch(file(*map(at, manners)), tmp_path).read_bytes() == CONTENT
    assert [path.split("/")[1] for path in server.asked] == manners[:4]
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]


def test_every_reason_is_named(tmp_path, at):
    message = refused(tmp_path, at("missing"), at("wrong"))
    assert message.index("404 Not Found") < message.index("wrong checksum")


def test_mirrors_come_first(tmp_path, at, server):
    mirror = at("good").removesuffix("/data.bin")
    fetch(file(at("missing")), tmp_path, mirrors=[f"{mirror}/", "http://127.0.0.1:1"])
    assert server.asked == ["/good/data.bin"]


def test_a_mirror_has_to_serve_the_same_file(tmp_path, at, server):
    fetch(file(at("good")), tmp_path, mirrors=[at("wrong").removesuffix("/data.bin")])
    assert server.asked == ["/wrong/data.bin", "/good/data.bin"]


def test_a_corrupt_file_in_the_cache_is_replaced(tmp_path, at):
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1])
    assert fetch(file(at("good")), tmp_path).read_bytes() == CONTENT


def test_a_corrupt_file_in_the_cache_does_not_stay(tmp_path, at):
    (tmp_path / "data.bin").write_bytes(CONTENT[:-1])
    refused(tmp_path, at("missing"))


def test_offline(tmp_path, at, server):
    message = refused(tmp_path, at("good"), offline=True)
    assert message.startswith(
        f"{tmp_path / 'data.bin'}: is not in the cache; run once with a network, or give --data-dir"
    )
    (tmp_path / "data.bin").write_bytes(b"?")
    with pytest.raises(DataError, match=r"data\.bin: has a wrong checksum; run once with a network"):
        fetch(file(at("good")), tmp_path, offline=True)
    (tmp_path / "data.bin").write_bytes(CONTENT)
    assert fetch(file(at("good")), tmp_path, offline=True).read_bytes() == CONTENT
    assert server.asked == []


class Full:
    """A file on a disk with room for so many bytes."""

    def __init__(self, path, mode, room=100_000):
        self.file, self.room = open(path, mode), room  # noqa: SIM115

    def write(self, piece):
        self.room -= len(piece)
        if self.room < 0:
            raise OSError(28, "No space left on device")
        return self.file.write(piece)

    def flush(self):
        self.file.flush()

    def close(self):
        self.file.close()


def test_no_space(tmp_path, at, server, monkeypatch):
    monkeypatch.setattr("pooch.downloaders.open", Full, raising=False)
    message = refused(tmp_path, at("good"), at("good"))
    assert message == (
        f"{tmp_path / 'data.bin'}: No space left on device; make room or take another cache,"
        " or give --data-dir a directory that holds data.bin"
    )
    assert len(server.asked) == 1  # another address would not help


NO_SPACE = """
from pathlib import Path
from aggmo.lab.data.description import DataError
from aggmo.lab.data.download import Download, fetch
try:
    fetch(Download("data.bin", {sha256!r}, ({address!r},)), Path({cache!r}))
except DataError as error:
    print(error)
print(list(Path({cache!r}).iterdir()))
"""


@pytest.mark.skipif(not shutil.which("unshare"), reason="unshare is not installed")
def test_a_full_disk(tmp_path, at):
    """A real one: a file system of 64 kB in memory, which this user may mount in a namespace of its own."""
    mount = f"mount -t tmpfs -o size=64k none {tmp_path} && exec "
    enter = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*enter, mount + "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not mount a file system")
    code = NO_SPACE.format(sha256=SHA256, address=at("good"), cache=str(tmp_path))
    command = [*enter, f'{mount} "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"NO_PROXY": "*"})
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'data.bin'}: No space left on device; make room or take another cache,"
        " or give --data-dir a directory that holds data.bin",
        "[]",
    ]


def test_a_cache_that_cannot_be_made(tmp_path, at):
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(DataError, match=r"data\.bin: Not a directory; make room or take another cache"):
        fetch(file(at("good")), tmp_path / "taken")


def test_an_interrupted_download_leaves_nothing(tmp_path, at, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("aggmo.lab.data.download._Progress.update", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(file(at("good")), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_download(tmp_path, at):
    for name, age in (("tmpold", 2 * download.ABANDONED), ("tmpnew", 0), ("other", 2 * download.ABANDONED)):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    fetch(file(at("good")), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"data.bin", "tmpnew", "other"}


def test_several_processes_may_download_at_once(tmp_path, at):
    threads = [threading.Thread(target=fetch, args=(file(at("good")), tmp_path)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]
    assert (tmp_path / "data.bin").read_bytes() == CONTENT


def test_progress(tmp_path, at, capsys):
    fetch(file(at("good")), tmp_path / "shown", progress=True)
    shown = capsys.readouterr().err
    assert "\rdata.bin: 21% of 0.3 MB" in shown  # the first piece of 65,536 bytes
    assert shown.endswith("\rdata.bin: 100% of 0.3 MB\n")
    fetch(file(at("good")), tmp_path / "silent", progress=False)
    assert "%" not in capsys.readouterr().err


def test_a_data_set_from_the_network(tmp_path, at, server, tiny, monkeypatch):
    """A gzip'ed member and an archive come through the cache, whose folder works as a data directory then."""
    tiny.write_tar(tmp_path / "two.tar.gz", {"a.bin": b"first", "b.bin": b"second"}, "x")
    served = (tmp_path / "two.tar.gz").read_bytes()
    monkeypatch.setattr(sys.modules[__name__], "CONTENT", served)
    archive = Download("two.tar.gz", hashlib.sha256(served).hexdigest(), (at("good"),))
    original = Original("two", ("a.bin", "b.bin"), ("folder",), ("two.tar.gz",), (archive,))
    store = Store(cache_dir=tmp_path / "cache")
    expected = {"a.bin": b"first", "b.bin": b"second"}
    assert {name: member.content for name, member in store.read(original).items()} == expected
    assert store.source == "download"
    for again in (Store(tmp_path / "cache"), Store(cache_dir=tmp_path / "cache", offline=True)):
        assert {name: member.content for name, member in again.read(original).items()} == expected
    assert server.asked == ["/good/data.bin"]


def test_a_published_file_that_lacks_a_member(tmp_path, at, monkeypatch, tiny):
    tiny.write_tar(tmp_path / "two.tar.gz", {"a.bin": b"first"}, "x")
    served = (tmp_path / "two.tar.gz").read_bytes()
    monkeypatch.setattr(sys.modules[__name__], "CONTENT", served)
    archive = Download("two.tar.gz", hashlib.sha256(served).hexdigest(), (at("good"),))
    original = Original("two", ("a.bin", "b.bin"), ("folder",), ("two.tar.gz",), (archive,))
    with pytest.raises(DataError, match=r"folder: b\.bin of two is missing; delete .*folder, and the data are"):
        Store(cache_dir=tmp_path / "cache").read(original)


def test_addresses_and_checksums_are_well_formed():
    from aggmo.lab.data import cifar10, cifar100, mnist, ptb

    for original in (mnist.ORIGINAL, cifar10.ORIGINAL, cifar100.ORIGINAL, ptb.ORIGINAL):
        for each in original.downloads:
            assert len(bytes.fromhex(each.sha256)) == 32
            assert len(each.addresses) >= 2
            assert all(address.startswith("https://") and Path(address).name == each.file for address in each.addresses)

"""The server: who is answered and who is not, the command, and how it ends."""

import http.client
import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from aggmo.explore.settings import MOST, RANGES, Settings, query


def answer(address, host=None, origin=None, path="/"):
    """Status and body of a request with these headers."""
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(address).port, timeout=30)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in (("Host", host), ("Origin", origin)):
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders()
    response = connection.getresponse()
    body = response.read()
    connection.close()
    return response.status, body


def names(address):
    """The two names of the server with its port."""
    port = urlsplit(address).port
    return [f"127.0.0.1:{port}", f"localhost:{port}"]


def test_this_machines_own_names_are_answered(address):
    for name in names(address):
        for origin in (None, f"http://{name}"):
            status, body = answer(address, name, origin)
            assert status == 200
            assert b"<title>AggMo explorer</title>" in body


@pytest.mark.parametrize("path", ["/", "/health", "/api/status", "/assets/", "/no-such-page"])
def test_a_foreign_host_gets_nothing(address, path):
    port = urlsplit(address).port
    for host in ("example.org", f"example.org:{port}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.example.org:{port}", ""):
        assert answer(address, host, path=path) == (403, b"")


def test_a_request_without_host_gets_nothing(address):
    with socket.create_connection(("127.0.0.1", urlsplit(address).port), timeout=30) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith(b"HTTP/1.1 403")
    assert received.endswith(b"\r\n\r\n")


def test_a_page_of_another_origin_gets_nothing(address):
    own = names(address)[0]
    for origin in ("http://example.org", "null", f"https://{own}", "http://127.0.0.1:1"):
        assert answer(address, own, origin) == (403, b"")


def test_a_link_too_long_to_be_one_is_refused_and_the_longest_that_is_one_answered(address):
    own = names(address)[0]
    row = (0.12345678901234567,) * MOST
    numbers = {name: low + (high - low) / 3 for name, (low, high) in RANGES.items() if name != "a"}
    longest = query(Settings(betas=row, weights=row, **numbers))
    assert 400 < len(longest) < 700
    assert answer(address, own, path="/" + longest)[0] == 200
    told = b"This link cannot be used: it is too long to be one of the explorer's.\n"
    assert answer(address, own, path="/?betas=" + "0," * 5000) == (414, told)
    assert answer(address, "example.org", path="/?betas=" + "0," * 5000) == (403, b"")


def test_a_web_socket_is_opened_by_the_page_alone(address):
    own, path = names(address)[0], "ws?session_id=s_test01"
    with connect(f"ws://{own}/{path}", origin=f"http://{own}", open_timeout=30) as opened:
        assert "kernel-ready" in opened.recv(timeout=30)
    with pytest.raises(InvalidStatus, match="403"):
        connect(f"ws://{own}/{path}", origin="http://example.org", open_timeout=30)
    port = urlsplit(address).port
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as led_here,
        pytest.raises(InvalidStatus, match="403"),
    ):
        connect(f"ws://example.org:{port}/{path}", sock=led_here, open_timeout=30)


def test_another_machine_gets_nothing(address):
    """Only 127.0.0.1 is listened on: not every address, as 127.0.0.2, also this machine's, would show."""
    port = urlsplit(address).port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=5)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    rows += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    listening = [local for _, local, _, state, *_ in rows if state == "0A" and local.endswith(f":{port:04X}")]
    assert listening == [f"0100007F:{port:04X}"]


def command(*arguments):
    """`aggmo explore` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "aggmo", "explore", *arguments], capture_output=True, text=True, timeout=120
    )


def test_a_port_that_is_taken_is_told_in_one_line(address):
    port = urlsplit(address).port
    done = command("--no-browser", "--port", str(port))
    told = f"aggmo: port {port} on 127.0.0.1 cannot be used (Address already in use): take another with --port\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none_is_told_in_one_line(port):
    done = command("--port", port)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"aggmo: port={port}: must be a whole number from 0 to 65535\n"


def test_the_browser_is_opened_at_the_page_and_ctrl_c_ends_all(run, tmp_path):
    browser, opened = tmp_path / "browser", tmp_path / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}.part && mv {opened}.part {opened}\n')
    browser.chmod(browser.stat().st_mode | stat.S_IXUSR)
    with run("--port", "0", BROWSER=f"{browser} %s") as (process, address):
        own = names(address)[0]
        assert answer(address, own)[0] == 200
        assert opened.read_text() == f"{address}\n"
        with connect(f"ws://{own}/ws?session_id=s_test02", origin=f"http://{own}", open_timeout=30):
            os.kill(process.pid, signal.SIGINT)
            assert process.wait(timeout=30) == 130
        assert process.stdout.read() == ""

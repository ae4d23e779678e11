"""An S3 server of the tests, on loopback: moto, which knows S3's errors and can check signatures.

It checks them only where a test asks for it: it takes queries as they were sent for what was signed,
while clients may leave out escapes (Amazon's servers put them in before they check).
"""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import boto3
from botocore.config import Config

BUCKET = "bucket-of-tests"

_ALL = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
}


class Server(NamedTuple):
    """Where it listens, and the key of its only user."""

    endpoint: str
    key: str
    secret: str
    pid: int

    @property
    def credentials(self) -> dict[str, str]:
        return {"accessKeyId": self.key, "secretAccessKey": self.secret}

    @contextmanager
    def strict(self) -> Iterator[None]:
        """Refuse whoever signs with another key, meanwhile."""
        self._open_to(0)
        try:
            yield
        finally:
            self._open_to(1_000_000_000)

    def _open_to(self, requests: int) -> None:
        url, kind = self.endpoint + "/moto-api/reset-auth", {"Content-Type": "text/plain"}
        request = urllib.request.Request(url, str(requests).encode(), kind)
        urllib.request.urlopen(request).close()

    def client(self) -> Any:
        """A client of boto3."""
        return _boto("s3", self.endpoint, self.key, self.secret)


def _boto(service: str, endpoint: str, key: str, secret: str) -> Any:
    return boto3.client(
        service, endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id=key,
        aws_secret_access_key=secret, config=Config(s3={"addressing_style": "path"}),
    )  # fmt: skip


@contextmanager
def serving(address: str = "127.0.0.1", enter: Sequence[str] = ()) -> Iterator[Server]:
    """Run a server with one bucket, `BUCKET`, and one user.

    *address* is one of the network that a program started with *enter* before it is in.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    endpoint = f"http://{address}:{port}"
    process = subprocess.Popen(
        [*enter, sys.executable, "-m", "moto.server", "-H", address, "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "1000000"},
    )  # fmt: skip
    try:
        _answering(endpoint)
        yield _with_user(endpoint, process.pid)
    finally:
        process.kill()
        process.wait()


def _answering(endpoint: str) -> None:
    end = time.monotonic() + 50
    while True:
        try:
            urllib.request.urlopen(endpoint + "/moto-api/data.json", timeout=5).close()
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < end
            time.sleep(0.1)
        else:
            return


def _with_user(endpoint: str, pid: int) -> Server:
    iam = _boto("iam", endpoint, "any", "any")
    iam.create_user(UserName="user")
    iam.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(_ALL))
    made = iam.create_access_key(UserName="user")["AccessKey"]
    server = Server(endpoint, made["AccessKeyId"], made["SecretAccessKey"], pid)
    server.client().create_bucket(Bucket=BUCKET)
    return server

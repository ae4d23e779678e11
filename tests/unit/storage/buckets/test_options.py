import pytest

from atoll.errors import InvalidMountConfigError
from atoll.storage.buckets import options
from atoll.storage.buckets.options import Credentials, Origin, Source

GIVEN = {
    "bucket": "bucket", "endpoint": "https://s3.example.com", "provider": None, "prefix": None,
    "read_only": False, "given": (),
}  # fmt: skip


def source(**fields: object) -> Source:
    return options.source(**{**GIVEN, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"bucket": ""}, "bucket"),
        ({"bucket": "a:/etc"}, "bucket"),
        ({"bucket": "a b c"}, "bucket"),
        ({"bucket": "-o-logfile"}, "bucket"),
        ({"provider": "other"}, "provider"),
        ({"provider": "r2", "endpoint": None}, "endpoint"),
        ({"endpoint": None}, "endpoint"),
        ({"endpoint": "file:///etc/passwd"}, "endpoint"),
        ({"endpoint": "https://user@host"}, "endpoint"),
        ({"endpoint": "https://host/path"}, "endpoint"),
        ({"endpoint": "https://host?x=1"}, "endpoint"),
        ({"endpoint": "https://a,uid=0"}, "endpoint"),
        ({"endpoint": "https://host:99999"}, "endpoint"),
        ({"endpoint": "https://[::1"}, "endpoint"),
        ({"prefix": "../other"}, "prefix"),
        ({"prefix": "a//b"}, "prefix"),
        ({"prefix": "a\nb"}, "prefix"),
        ({"prefix": "x" * 600}, "prefix"),
        ({"given": ["logfile=/etc/x"]}, "s3fsOptions"),
        ({"given": ["passwd_file=/x"]}, "s3fsOptions"),
        ({"given": ["use_cache=/tmp"]}, "s3fsOptions"),
        ({"given": ["retries"]}, "s3fsOptions"),
        ({"given": ["retries=9999"]}, "s3fsOptions"),
        ({"given": ["retries=1,uid=0"]}, "s3fsOptions"),
        ({"given": ["sigv4=1"]}, "s3fsOptions"),
        ({"given": ["umask=0022,url=x"]}, "s3fsOptions"),
        ({"given": ["ro,credlib=/x"]}, "s3fsOptions"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, object], named: str) -> None:
    with pytest.raises(InvalidMountConfigError) as caught:
        source(**fields)
    assert caught.value.context["field"] == named


def test_an_endpoint_is_a_place_whatever_its_form() -> None:
    assert options.origin("HTTPS://S3.Example.COM/") == Origin("https", "s3.example.com", 443)
    assert str(options.origin("http://s3.example.com:80")) == "http://s3.example.com"
    assert str(options.origin("http://h:9000")) == "http://h:9000"


@pytest.mark.parametrize(
    ("fields", "provider", "region"),
    [
        ({"endpoint": None, "provider": "s3"}, "s3", "us-east-1"),
        ({"endpoint": "https://s3.eu-west-1.amazonaws.com"}, "s3", "eu-west-1"),
        ({"endpoint": "https://acc.r2.cloudflarestorage.com"}, "r2", "auto"),
        ({"endpoint": "https://storage.googleapis.com"}, "gcs", "us-east-1"),
        ({"endpoint": "https://acct.blob.core.windows.net"}, "azure", "us-east-1"),
        ({"given": ["endpoint=eu-1"]}, "s3", "eu-1"),
    ],
)
def test_providers_and_regions_are_told_from_the_endpoint(
    fields: dict[str, object], provider: str, region: str
) -> None:
    found = source(**fields)
    assert (found.provider, found.region) == (provider, region)


def test_what_servers_of_a_provider_need_is_set_however_it_is_told() -> None:
    for fields in ({"endpoint": "https://storage.googleapis.com"}, {"provider": "gcs"}):
        found = source(**fields, given=["umask=0022"])
        assert found.options == {"nomultipart": None, "umask": "0022"}
    assert source(endpoint="https://s3.example.com").options == {}


def test_only_amazon_is_given_the_bucket_as_a_host_name() -> None:
    amazon = "https://s3.eu-west-1.amazonaws.com"
    assert not source(endpoint=amazon).by_path
    assert source(endpoint=amazon, bucket="with.dots").by_path
    assert source(endpoint=amazon, given=["use_path_request_style"]).by_path
    assert source().by_path


def test_what_the_host_decides_cannot_be_overridden() -> None:
    found = source(provider="r2", prefix="/a/b/", read_only=True, given=["retries=3", "nocopyapi"])
    assert found.prefix == "a/b"
    told = options.told(found, 1234).split(",")
    assert {"uid=1234", "gid=1234", "ro", "retries=3", "nocopyapi", "nomixupload"} <= set(told)
    assert len(told) == len({option.partition("=")[0] for option in told})


def test_keys_that_would_break_their_file_are_refused_and_never_shown() -> None:
    good = Credentials(access_key_id="AKIAEXAMPLE", secret_access_key="top/secret+")
    options.check_credentials(good)
    assert "secret" not in repr(good)
    for key, secret in (("a:b", "s"), ("a\nb", "s"), ("", "s"), ("a", ""), ("a", "s\nother:x")):
        with pytest.raises(InvalidMountConfigError):
            options.check_credentials(Credentials(access_key_id=key, secret_access_key=secret))


def test_a_mount_is_no_part_of_the_system() -> None:
    assert options.mount_path("//mnt/./data/") == "/mnt/data"
    for path in ("/", "relative", "/a/../b", "/proc/1", "/etc", "/a\0b", "/a\nb", "/" + "x" * 2000):
        with pytest.raises(InvalidMountConfigError):
            options.mount_path(path)

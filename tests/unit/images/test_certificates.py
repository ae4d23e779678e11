"""Only certificates the host was given on purpose are extra."""

from pathlib import Path

import pytest

from atoll.images import certificates


def pem(body: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----"


def test_a_shipped_certificate_is_not_extra() -> None:
    bundle = "\n".join([pem("AA"), pem("BB"), pem("CC")])
    assert certificates.extra_certificates(bundle, [], [pem("AA"), pem("CC")]) == (pem("BB"),)


def test_a_certificate_in_two_places_is_given_once() -> None:
    wrapped = pem("B\nB")
    assert certificates.extra_certificates(pem("BB"), [wrapped], []) == (pem("BB"),)


def test_a_local_certificate_that_is_not_in_the_bundle_yet_counts() -> None:
    assert certificates.extra_certificates("", [f"# ours\n{pem('DD')}\n"], []) == (pem("DD"),)


def _host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, local: str) -> None:
    for name, text in {
        "bundle": pem("AA"),
        "shipped/a.crt": pem("AA"),
        "local/x.crt": local,
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(certificates, "_BUNDLES", (str(tmp_path / "bundle"),))
    monkeypatch.setattr(certificates, "_SHIPPED", (str(tmp_path / "shipped"),))
    monkeypatch.setattr(certificates, "_LOCAL", (str(tmp_path / "local"),))


def test_a_host_without_extras_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _host(tmp_path, monkeypatch, local="")
    assert certificates.host_trust(tmp_path / "cache") is None
    assert not (tmp_path / "cache").exists()


def test_every_variable_names_a_file_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _host(tmp_path, monkeypatch, local=pem("EE"))
    trust = certificates.host_trust(tmp_path / "cache")
    assert trust is not None
    for target in trust.env.values():
        assert (trust.directory / Path(target).relative_to(certificates.TARGET)).is_file()
    assert pem("AA") in (trust.directory / "ca.pem").read_text()
    assert pem("AA") not in (trust.directory / "extra.pem").read_text()


def test_a_changed_certificate_makes_another_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Running sandboxes keep the one they have mounted."""
    _host(tmp_path, monkeypatch, local=pem("EE"))
    first = certificates.host_trust(tmp_path / "cache")
    _host(tmp_path, monkeypatch, local=pem("FF"))
    second = certificates.host_trust(tmp_path / "cache")
    assert first is not None
    assert second is not None
    assert first.directory != second.directory
    assert pem("EE") in (first.directory / "extra.pem").read_text()

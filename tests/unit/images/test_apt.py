"""The base image comes from the host's Debian mirrors and from nothing else on the host."""

from atoll.images import apt

DEB822 = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://other.example/deb
Suites: bookworm
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .

Types: deb-src
URIs: http://src.example/debian
Suites: bookworm
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
"""
LIST = """\
# deb http://commented.example bookworm main
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://u:p@m.example/debian bookworm main non-free # x
deb-src http://m.example/debian bookworm main
deb https://tools.example cloud-bookworm main
deb [signed-by=/etc/apt/keyrings/editor.gpg] https://editor.example bookworm main
deb https://docker.example/linux/debian bookworm stable
deb file:/srv/repo bookworm main
deb http://m.example/security bookworm-security main
"""


def _choose(name: str, text: str) -> tuple[str, ...]:
    return apt.choose(apt.host_sources([(name, text)]), "bookworm")


def test_the_stanza_format_is_read_and_other_archives_are_left_out() -> None:
    assert _choose("debian.sources", DEB822) == (
        "deb http://mirror.example/debian bookworm main",
        "deb http://mirror.example/debian bookworm-updates main",
    )


def test_the_line_format_is_read_and_passwords_are_dropped() -> None:
    assert _choose("sources.list", LIST) == (
        "deb http://m.example/debian bookworm main",
        "deb http://m.example/security bookworm-security main",
    )


def test_a_host_without_the_suite_leaves_the_archive_to_mmdebstrap() -> None:
    assert apt.choose(apt.host_sources([("sources.list", LIST)]), "trixie") == ()


def test_only_settings_about_reaching_archives_are_taken_over() -> None:
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::https::CaInfo "/x.pem";\n'
        'Acquire::Check-Valid-Until "false";\n'
        'DPkg::Post-Invoke:: "rm -rf /";\n'
        'APT::Update::Post-Invoke-Success:: "x";\n'
        'Acquire::IndexTargets::deb "y";\n'
    )
    assert apt.acquire_options(dump) == (
        'Acquire::http::Proxy "http://proxy.example:3128";',
        'Acquire::https::CaInfo "/x.pem";',
        'Acquire::Check-Valid-Until "false";',
    )

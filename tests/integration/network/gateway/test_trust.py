import ssl
from pathlib import Path

import pytest

from atoll.network.gateway.certificates import new_authority
from atoll.network.gateway.trust import trust


def test_the_first_bundle_counts_and_more_are_added(tmp_path: Path) -> None:
    files = []
    for name in ("first", "second", "more"):
        files.append(tmp_path / name)
        files[-1].write_text(new_authority(name).certificate)
    first, second, more = files
    context = trust([more], bundles=[tmp_path / "none", first, second])
    assert len(context.get_ca_certs()) == 2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError):
        trust([tmp_path / "none"], bundles=[])

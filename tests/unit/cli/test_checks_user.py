import pytest

from atoll.cli import checks_user as checks


@pytest.mark.parametrize(
    ("limit", "clone", "apparmor", "verdict", "advice"),
    [
        (100, None, None, "ok", ""),
        (100, 1, 0, "ok", ""),
        (None, None, None, "failed", "max_user_namespaces"),
        (0, None, None, "failed", "max_user_namespaces"),
        (100, 0, None, "failed", "unprivileged_userns_clone=1"),
        (100, None, 1, "warning", "apparmor_restrict_unprivileged_userns=0"),
    ],
)
def test_namespaces_are_judged_with_what_to_do(
    limit: int | None, clone: int | None, apparmor: int | None, verdict: str, advice: str
) -> None:
    found = checks.namespaces(limit, clone, apparmor)
    assert found.verdict == verdict
    assert advice in (found.advice or "")


@pytest.mark.parametrize(
    ("release", "verdict"), [("5.11.0-1-amd64", "ok"), ("6.1.0", "ok"), ("5.10.0", "failed")]
)
def test_the_kernel_has_to_let_users_mount_overlays(release: str, verdict: str) -> None:
    assert checks.kernel(release).verdict == verdict


def test_what_is_not_limited_is_told_on_every_host() -> None:
    for given in (None, (), ("memory", "pids", "cpu")):
        assert checks.limits("", given).verdict == "warning"
        assert "disk" in checks.limits("", given).seen
        assert checks.limits("memory 8 GiB", given).seen.endswith("together: memory 8 GiB")


def test_who_was_given_a_control_group_is_told_what_it_limits_and_others_how_to_get_one() -> None:
    whole = checks.limits("", ("memory", "pids", "cpu"))
    assert "a control group for each sandbox: freezing, memory, pids, cpu" in whole.seen
    assert (whole.advice, "no controllers" in whole.seen) == (None, False)
    some = checks.limits("", ("pids",))
    assert "no controllers here for memory, cpu" in some.seen
    for one in (some, checks.limits("", None)):
        assert "Delegate=yes" in str(one.advice)


def test_a_network_that_cannot_be_given_says_what_to_install() -> None:
    assert checks.network([], None).verdict == "ok"
    told = checks.network(["nftables"], None)
    assert (told.verdict, told.advice) == ("warning", "apt-get install nftables")
    assert "loopback only (without nftables)" in told.seen
    refused = checks.network([], "nft: not permitted")
    assert "nft: not permitted" in refused.seen
    assert "modprobe" in str(refused.advice)


def test_what_is_missing_says_how_to_get_it() -> None:
    assert checks.bubblewrap("/b", "bubblewrap 0.11.0").verdict == "ok"
    assert "pip install" in (checks.bubblewrap(None, "none").advice or "")
    assert checks.root(None).verdict == "ok"
    assert checks.root("user namespace: Operation not permitted").verdict == "failed"
    assert checks.image(ids=True, mmdebstrap=True, skopeo=True).verdict == "ok"
    told = checks.image(ids=False, mmdebstrap=True, skopeo=False)
    assert told.advice == "apt-get install uidmap skopeo"
    assert checks.user(1000).verdict == "ok"

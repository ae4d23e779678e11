from datetime import UTC, datetime, timedelta

import pytest

from atoll.engine.store import record as rules
from atoll.engine.store.record import Record
from atoll.errors import InvalidImageError, NotSupportedByRuntimeError, ValidationFailedError
from atoll.settings import InstanceType, Settings
from atoll.wire.sandbox import CustomInstance, NamespaceConfig, SandboxOptions, State

TYPES = Settings().instance_types
CREATED = datetime(2030, 1, 1, tzinfo=UTC)


def make_record(**fields: object) -> Record:
    known = {"namespace": "N", "id": "box", "state": State.CREATED, "layer_id": "l"}
    return Record(**{**known, "created_at": CREATED, **fields})  # type: ignore[arg-type]


def test_given_options_win_and_others_stay() -> None:
    old = SandboxOptions(image="a", labels={"x": "1"})
    merged = rules.merge(old, SandboxOptions(image="b"))
    assert merged == SandboxOptions(image="b", labels={"x": "1"})


def test_defaults_come_from_the_namespace_then_from_the_settings() -> None:
    namespace = NamespaceConfig(image="ns", sleep_after_ms=0)
    full = rules.with_defaults(SandboxOptions(env={"A": "1"}), namespace, Settings())
    assert (full.image, full.sleep_after_ms, full.instance_type) == ("ns", 0, "lite")
    assert full.env == {"A": "1"}
    plain = rules.with_defaults(SandboxOptions(), NamespaceConfig(), Settings())
    assert plain.sleep_after_ms == 600_000


def test_a_namespace_without_internet_holds_until_a_sandbox_asks() -> None:
    closed = NamespaceConfig(enable_internet=False)
    wanted = rules.with_defaults(SandboxOptions(), closed, Settings())
    assert wanted.enable_internet is False
    asked = rules.with_defaults(SandboxOptions(enable_internet=True), closed, Settings())
    assert asked.enable_internet is True


@pytest.mark.parametrize(
    "options",
    [
        SandboxOptions(sleep_mode="nap"),
        SandboxOptions(sleep_after_ms=-1),
        SandboxOptions(ttl_ms=-1),
        SandboxOptions(instance_type="huge"),
        SandboxOptions(instance_type=CustomInstance(vcpu=0, memory_mib=64, disk_mb=64)),
        SandboxOptions(instance_type=CustomInstance(vcpu=1, memory_mib=1, disk_mb=64)),
        SandboxOptions(env={"A=B": "x"}),
        SandboxOptions(env={"": "x"}),
        SandboxOptions(env={"A": "x\0"}),
        SandboxOptions(labels={"a,b": "x"}),
        SandboxOptions(labels={"a": "x\n"}),
        SandboxOptions(labels={"a": "\x1b[2J"}),
        SandboxOptions(ttl_ms=1 << 62),
        SandboxOptions(queue_ms=-1),
        SandboxOptions(instance_type=CustomInstance(vcpu=1e9, memory_mib=64, disk_mb=64)),
        SandboxOptions(instance_type=CustomInstance(vcpu=1, memory_mib=1 << 50, disk_mb=64)),
        SandboxOptions(volumes={"data": "v"}),
        SandboxOptions(volumes={"/": "v"}),
        SandboxOptions(volumes={"/a/../b": "v"}),
        SandboxOptions(volumes={"/data": "../v"}),
        SandboxOptions(volumes={"/etc": "v"}),
        SandboxOptions(volumes={"/etc/hosts": "v"}),
        SandboxOptions(volumes={"/proc/self": "v"}),
        SandboxOptions(volumes={"/dev/": "v"}),
        SandboxOptions(ttl_ms=0),
        SandboxOptions(volumes={"/data": "v", "/data/more": "w"}),
        SandboxOptions(volumes={"/data/more": "v", "/data/": "w"}),
    ],
)
def test_options_that_cannot_work_are_refused(options: SandboxOptions) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        rules.check_options(options, TYPES)
    assert caught.value.context["field"]


def test_a_way_to_sleep_that_nothing_offers_is_refused_and_never_replaced() -> None:
    with pytest.raises(NotSupportedByRuntimeError):
        rules.check_options(SandboxOptions(sleep_mode="checkpoint"), TYPES)


def test_options_that_say_the_same_change_nothing() -> None:
    record = make_record(wanted=SandboxOptions(image="a", ttl_ms=1_000))
    assert rules.with_options(record, SandboxOptions(image="a")) == {}
    changes = rules.with_options(record, SandboxOptions(ttl_ms=2_000))
    assert changes["expires_at"] == CREATED + timedelta(seconds=2)


def test_options_that_can_work_are_taken() -> None:
    rules.check_options(SandboxOptions(), TYPES)
    rules.check_options(
        SandboxOptions(
            sleep_mode="freeze", sleep_after_ms=0, env={"A": "=", "B": None}, instance_type="lite"
        ),
        TYPES,
    )


@pytest.mark.parametrize("image", ["BAD IMAGE", "", "a:b c", "x@sha256:1"])
def test_what_is_no_image_is_refused_before_it_is_stored(image: str) -> None:
    with pytest.raises(InvalidImageError):
        rules.check_options(SandboxOptions(image=image), TYPES)
    with pytest.raises(InvalidImageError):
        rules.check_defaults(NamespaceConfig(image=image), TYPES)


def test_a_namespace_cannot_have_fewer_than_no_sandboxes() -> None:
    rules.check_defaults(NamespaceConfig(image="a", labels={"a": "b"}, max_instances=0), TYPES)
    with pytest.raises(ValidationFailedError):
        rules.check_defaults(NamespaceConfig(max_instances=-1), TYPES)


def test_sizes_are_named_or_custom() -> None:
    custom = CustomInstance(vcpu=1.5, memory_mib=100, disk_mb=200)
    assert rules.instance(custom, TYPES) == InstanceType(vcpu=1.5, memory_mib=100, disk_mb=200)
    limits = rules.limits(rules.instance("lite", TYPES), 7)
    assert (limits.memory, limits.disk, limits.pids) == (256 << 20, 2_000 * 10**6, 7)


def test_ttl_counts_from_creation() -> None:
    assert rules.expiry(CREATED, SandboxOptions()) is None
    assert rules.expiry(CREATED, SandboxOptions(ttl_ms=5_000)) == CREATED + timedelta(seconds=5)


def test_info_of_a_sandbox_that_never_ran_tells_what_a_start_would_use() -> None:
    info = rules.info(
        make_record(wanted=SandboxOptions(instance_type="basic")), NamespaceConfig(), Settings()
    )
    assert (info.image, info.instance_type, info.isolation) == ("atoll/base", "basic", "container")
    assert info.limits.memory == 1_024 << 20


def test_info_tells_what_is_in_force_rather_than_what_is_wanted() -> None:
    force = rules.InForce(
        image="old",
        digest="d",
        instance_type="custom",
        level="gvisor",
        runtime="runsc",
        limits=rules.limits(TYPES["heavy"], 1),
        unlimited=("pids",),
    )
    record = make_record(wanted=SandboxOptions(image="new"), in_force=force, state=State.RUNNING)
    info = rules.info(record, NamespaceConfig(), Settings())
    assert (info.image, info.instance_type, info.isolation) == ("old", "custom", "gvisor")
    assert (info.wanted.image, info.unlimited) == ("new", ["pids"])
    assert record.live
    assert record.key == ("N", "box")


def test_custom_sizes_have_no_name() -> None:
    custom = CustomInstance(vcpu=1, memory_mib=64, disk_mb=64)
    record = make_record(wanted=SandboxOptions(instance_type=custom))
    assert rules.info(record, NamespaceConfig(), Settings()).instance_type == "custom"


def test_activity_is_noted_when_it_moved_by_a_second() -> None:
    now = rules.now()
    assert now.tzinfo is UTC
    assert rules.activity(make_record(), now, 3) == {"last_activity_at": now - timedelta(seconds=3)}
    noted = make_record(last_activity_at=now)
    assert rules.activity(noted, now + timedelta(seconds=9), 8.5) == {}
    assert rules.activity(noted, now + timedelta(seconds=9), 8) != {}


@pytest.mark.parametrize(
    "options",
    [
        SandboxOptions(env={"A": "x" * rules.MAX_ENV}),
        SandboxOptions(labels={str(n): "x" * 1_000 for n in range(70)}),
    ],
)
def test_more_text_than_every_listing_or_command_can_carry_is_refused(
    options: SandboxOptions,
) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        rules.check_options(options, TYPES)
    assert len(caught.value.message) < 200


def test_variables_that_are_set_one_by_one_have_the_same_limit() -> None:
    half = {"A": "x" * (rules.MAX_ENV // 2)}
    record = make_record(**rules.with_env(make_record(), half))
    assert rules.with_env(record, {"A": "1", "B": None})["env"] == {"A": "1", "B": None}
    with pytest.raises(ValidationFailedError):
        rules.with_env(record, {"B": half["A"]})

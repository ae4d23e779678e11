import msgspec

from atoll.wire.objects import AttachWorker, Delivery, Migration, WorkerClass, WorkerEvent


def test_events_tell_their_kind_and_ignore_what_they_do_not_know() -> None:
    event = Delivery(call="c", key="k", kind="hook")
    wire = msgspec.json.decode(msgspec.json.encode(event)) | {"new": 1}
    assert wire["type"] == "delivery"
    assert msgspec.convert(wire, WorkerEvent) == event


def test_migrations_have_the_keys_of_the_platform() -> None:
    wire = {"tag": "v2", "renamedClasses": [{"from": "A", "to": "B"}]}
    assert msgspec.convert(wire, Migration).renamed_classes[0].from_ == "A"


def test_a_worker_that_says_nothing_has_nothing() -> None:
    assert AttachWorker() == msgspec.convert({}, AttachWorker)
    assert WorkerClass(namespace="n", name="N").options.required_ports == []

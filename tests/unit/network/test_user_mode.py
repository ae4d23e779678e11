from atoll.network.user_mode import UserNetworks


async def test_a_sandbox_has_loopback_in_a_namespace_of_its_own() -> None:
    networks = UserNetworks()
    slot = await networks.acquire("e-1")
    assert (slot.netns, slot.address, slot.nameservers) == (None, "127.0.0.1", ())


async def test_nothing_is_left_to_find_or_to_remove() -> None:
    networks = UserNetworks()
    await networks.acquire("e-1")
    await networks.adopt(["e-1"])
    assert await networks.list() == []
    await networks.release("e-1")

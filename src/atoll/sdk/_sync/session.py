"""A session: the API of the sandbox, in a shell state of its own."""

from atoll.sdk._sync.commands import Commands
from atoll.sdk._sync.git import Git
from atoll.sdk._sync.interpreter import Interpreter
from atoll.sdk._sync.ports import Ports
from atoll.sdk._sync.processes import Processes
from atoll.sdk._sync.target import Address
from atoll.sdk._sync.transfer import Transfers
from atoll.wire import ops
from atoll.wire.base import Empty
from atoll.wire.process import SessionInfo


class Session(Commands, Processes, Transfers, Git, Ports, Interpreter):
    """A shell state with its own working directory, variables, functions and options.

    Made by `Sandbox.create_session` and `Sandbox.get_session`. Its commands run one after the
    other; those of different sessions run in parallel. It ends with its sandbox: after `destroy` its
    calls raise `StaleHandleError`, whatever has the sandbox's name by then.
    """

    def __init__(self, address: Address, info: SessionInfo) -> None:
        super().__init__(address.of_life(info.life), info.id, info.command_timeout_ms)
        self.info = info

    @property
    def id(self) -> str:
        """The session's id."""
        return self.info.id

    def __repr__(self) -> str:
        return f"<Session {self.id} of {self._address.namespace}/{self._address.id}>"

    def delete(self) -> None:
        """End the session and every process started in it."""
        self._call(ops.DELETE_SESSION, Empty(), more={"session": self.id})

"""The kernel provisioner ``atoll``: a kernel specification that names it runs in a sandbox.

In ``kernel.json``::

    {"display_name": "Sandbox", "language": "python", "argv": [], "interrupt_mode": "message",
     "metadata": {"kernel_provisioner": {"provisioner_name": "atoll",
                                         "config": {"sandbox": "my-sandbox"}}}}
"""

import sys
from typing import Any

from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets import Unicode


class SandboxProvisioner(LocalProvisioner):
    """Starts the process that speaks Jupyter's protocol; code runs in the sandbox."""

    sandbox = Unicode("", help="id of the sandbox; the kernel's own when empty").tag(config=True)
    namespace = Unicode("Sandbox", help="its namespace").tag(config=True)

    async def pre_launch(self, **options: Any) -> dict[str, Any]:
        """Put our own command in the place of the specification's."""
        options.setdefault("extra_arguments", [])
        found: dict[str, Any] = await super().pre_launch(**options)
        found["cmd"] = self.command(str(self.parent.connection_file))
        return found

    def command(self, connection_file: str) -> list[str]:
        """Return what is started here."""
        # Sandbox ids take no more than 40 characters where they are to be previewed.
        sandbox = self.sandbox or f"jupyter-{str(self.kernel_id)[:30]}"
        return [
            sys.executable, "-m", "atoll.jupyter.kernel",
            "-f", connection_file,
            "--sandbox", sandbox,
            "--namespace", self.namespace,
            "--language", self.kernel_spec.language or "python",
        ]  # fmt: skip

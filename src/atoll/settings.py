"""Every knob of Atoll with its unit, default and reason. Reads nothing.

`atoll.load_settings` fills these structs from flags, ``ATOLL_*`` variables and ``atoll.toml``.
A component is given its own group, never the whole, and never a module-level object.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from atoll.cluster_settings import ClusterSettings
from atoll.network_settings import NetworkSettings

MIB = 1 << 20
MB = 10**6

# Ranges a value must be in to work at all; `load_settings` refuses others by name.
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]
Size = Annotated[int, msgspec.Meta(gt=0, lt=1 << 62)]  # bytes
Count = Annotated[int, msgspec.Meta(gt=0, lt=1 << 31)]
Spare = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]  # a count that may be none
Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
Rate = Annotated[float, msgspec.Meta(gt=0, le=1e9)]  # a second
Cores = Annotated[float, msgspec.Meta(gt=0, le=4_096)]
Grace = Annotated[float, msgspec.Meta(ge=0, le=1e9)]  # seconds that may be none


class InstanceType(msgspec.Struct, frozen=True, kw_only=True):
    """A size of sandbox. Memory in MiB, disk in MB (10^6 bytes), cpu in cores."""

    memory_mib: Count
    vcpu: Cores
    disk_mb: Count


INSTANCE_TYPES: dict[str, InstanceType] = {
    "lite": InstanceType(memory_mib=256, vcpu=0.5, disk_mb=2_000),
    "dev": InstanceType(memory_mib=256, vcpu=0.5, disk_mb=2_000),
    "basic": InstanceType(memory_mib=1_024, vcpu=0.25, disk_mb=4_000),
    "standard": InstanceType(memory_mib=512, vcpu=1, disk_mb=4_000),
    "heavy": InstanceType(memory_mib=1_024, vcpu=2, disk_mb=8_000),
    "standard-1": InstanceType(memory_mib=4_096, vcpu=0.5, disk_mb=8_000),
    "standard-2": InstanceType(memory_mib=6_144, vcpu=1, disk_mb=12_000),
    "standard-3": InstanceType(memory_mib=8_192, vcpu=2, disk_mb=16_000),
    "standard-4": InstanceType(memory_mib=12_288, vcpu=4, disk_mb=20_000),
}


class BucketSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket that callers mount by the name of its binding, without seeing its key."""

    bucket: str
    endpoint: str
    provider: str | None = None
    access_key_id: str
    secret_access_key: str
    prefix: str = ""
    """Callers see only what is below it; a prefix of theirs is below this one."""

    def __repr__(self) -> str:
        return f"BucketSettings(bucket={self.bucket!r}, endpoint={self.endpoint!r})"


class StorageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are kept."""

    state_dir: Path = Path("/var/lib/atoll")
    """Store, layers, logs and sockets of one engine. Mode 0700."""

    cache_dir: Path = Path("/var/cache/atoll")
    """Images and the agent's interpreter: rebuilt when lost, shared by all engines of the host."""

    layer_store_gb: Count = 1_024
    """Size of the sparse file that holds the btrfs layer store, in GB (10^9 bytes). It takes only
    what is written; a number above the disk's size means that the disk itself is the limit."""

    reserve_mb: Spare = 1_000
    """MB (10^6 bytes) of the disk that sandboxes leave free: no layer grows into it, none is made
    within it. At 0 a full disk breaks the layer store of all sandboxes."""

    unpacked_mb: Spare = 4_000
    """MB (10^6 bytes) of backups that were put back and are kept unpacked, so that the next time shares
    their files; those that were not used for longest go first. 0: none. Needs layers on btrfs."""

    bucket_endpoints: tuple[str, ...] = ()
    """Endpoints of buckets (``http://minio.internal:9000``) that are reached from the host's network.
    All others are reached as the sandbox itself could, so never on private addresses."""

    s3_client: str = "auto"
    """Program that serves mounted buckets of S3: s3fs, rclone, or auto: s3fs where it is installed. It
    counts for the next start of each mount."""

    buckets: dict[str, BucketSettings] = {}
    """Binding → a bucket that every caller may mount by that name."""

    local_buckets: dict[str, Path] = {}
    """Binding → a folder of this host that stands for a bucket in development, and that every caller
    may mount by that name. Files in it are read and written with the rights of its owner."""


class BackupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The bucket that backups go to; without one they lie in the state directory."""

    bucket: str | None = None
    """Its name (also BACKUP_BUCKET_NAME)."""

    endpoint: str | None = None
    """``https://host`` of a server that speaks S3 (also BACKUP_BUCKET_ENDPOINT); None: of R2, by
    CLOUDFLARE_ACCOUNT_ID where that is set, else Amazon's. It is reached from the host's network."""

    access_key_id: str | None = None
    """Key of the bucket (also R2_ACCESS_KEY_ID, AWS_ACCESS_KEY_ID, each with its secret)."""

    secret_access_key: str | None = None
    """Its secret (also R2_SECRET_ACCESS_KEY, AWS_SECRET_ACCESS_KEY)."""

    def __repr__(self) -> str:
        return f"BackupSettings(bucket={self.bucket!r}, endpoint={self.endpoint!r})"


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the engine is reached."""

    socket: Path | None = None
    """Unix socket; None: ``engine.sock`` in the state directory. Mode 0600."""

    host: str = "127.0.0.1"
    """Address of the TCP listener. Anything but loopback needs keys."""

    port: Port | None = 8787
    """TCP port; None: no TCP listener."""

    api_key: str | None = None
    """A key with all scopes, besides those in the store (also SANDBOX_API_KEY)."""

    max_body: Size = 64 * MIB
    """Largest JSON body in bytes. File bodies are streamed and not limited by this."""

    max_hydrate: Size = 4 * 1024 * MIB
    """Largest archive in bytes that the bridge unpacks; it is streamed, the disk is the limit."""

    max_stdin: Size = 4 * 1024 * MIB
    """Largest standard input of one exec in bytes; it is spooled to disk over 1 MiB."""

    max_spooled: Size = 64 * 1024 * MIB
    """Bytes on disk of all standard input and build contexts at once. Never `reserve_mb` of it."""

    max_bodies: Size = 256 * MIB
    """Bytes of all JSON bodies in memory at once: `max_body` alone would let a few callers take
    the engine's memory. More of them are refused with `RATE_LIMITED` for a moment."""

    key_rate: Rate = 500.0
    """Requests a second that a key may send on average, and twice as many in a burst: far above
    what one program does, far below what keeps the engine from others."""

    key_concurrency: Count = 1_000
    """Requests under way of one key; each stream that is read is one of them."""

    idle_timeout: Seconds = 300.0
    """Seconds without a byte after which the body of a request is given up: a program may pause
    while it makes what it sends, one that is gone must not keep a command or a file waiting."""

    stall_timeout: Seconds = 600.0
    """Seconds a caller on TCP may leave an answer unread that is ready. The SDK attaches again to
    a stream that was cut; a program that reads a file may pause, one that is gone must end."""

    drain_timeout: Grace = 30.0
    """Seconds that calls under way have at a stop. Streams are cut at once: their callers attach
    again to the next engine."""

    audit_mib: Count = 64
    """MiB of records of mutating calls that are kept, about 250 bytes each; the oldest go first."""

    tls_certificate: Path | None = None
    """PEM file with the certificate chain of the TCP listener; None: no TLS."""

    tls_key: Path | None = None
    """PEM file with its private key; None: it is in `tls_certificate`."""

    trusted_proxies: tuple[str, ...] = ()
    """Networks (CIDR) of proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` count."""

    cors_origins: tuple[str, ...] = ()
    """Origins (``https://app.example``) whose pages may call the API with a key."""

    preview_domains: tuple[str, ...] = ("localhost",)
    """Domains that this engine serves previews below, by wildcard names (``*.example.com``). Give
    previews a domain of their own: their pages may set cookies for all of it."""

    tunnel_program: str = "cloudflared"
    """Program that makes tunnels, by name or path; there are none where it is not installed."""

    log_level: str = "info"
    """debug, info, warn or error (also SANDBOX_LOG_LEVEL)."""

    log_format: str = "pretty"
    """json or pretty (also SANDBOX_LOG_FORMAT)."""


class RuntimeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How containers are made."""

    default: str = "container"
    """Isolation level of sandboxes that name none."""

    oci: str = "auto"
    """crun, runc, or auto: the first that this host's cgroups allow."""

    pids: Count = 1_024
    """Processes and threads of one sandbox: room for a build, far below the host's own limit."""

    agent_memory_mib: Count = 768
    """Memory of the agent and its supervisors (about 3 MB for each running command)."""

    agent_pids: Count = 1_024
    """Processes of the agent itself."""

    id_base: Count = 0x7000_0000
    """First host uid and gid of the ranges given to sandboxes. Nobody else's: systemd gives its
    containers ids below it, and there is room for 4,096 ranges before ids become negative."""

    id_count: Count = 65_536
    """Ids of one sandbox."""

    start_timeout: Seconds = 30.0
    """Seconds until a sandbox that does not answer counts as failed (SANDBOX_INSTANCE_TIMEOUT_MS)."""


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where images come from."""

    default: str = "atoll/base"
    """Image of sandboxes that name none."""

    image_aliases: dict[str, str] = {}
    """Reference prefix → image used instead, also where the registry could be reached."""

    trust_host_ca: bool = True
    """Whether builds and sandboxes trust the host's extra CA certificates."""

    build_env: dict[str, str] = {}
    """Variables of apt, pip and registry clients on the host while images are made: PIP_*,
    HTTP_PROXY, HTTPS_PROXY, NO_PROXY. Sandboxes never see them."""

    build_timeout: Seconds = 1_800.0
    """Seconds one image build or pull may take."""

    build_memory_mib: Count = 4_096
    """Memory of one build step in MiB."""

    max_image_mb: Count = 20_000
    """Largest unpacked image, and largest build context, in MB (10^6 bytes)."""


class LifecycleSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of sandboxes and limits of the node."""

    sleep_after: Grace = 600.0
    """Idle seconds before a sandbox sleeps."""

    instance_type: str = "lite"
    """Size of sandboxes that name none."""

    max_instances: Count = 1_000
    """Sandboxes that may run on this node at once."""

    orphan_grace: Grace = 60.0
    """Seconds a command that nobody attached to lives on after an engine came back."""

    reserve_memory_mib: Spare = 512
    """MiB of memory that starts leave to the node, at most a sixteenth of what it has: below it they
    are refused, and below twice as much idle sandboxes are stopped."""

    reserve_pids: Spare = 2_048
    """Processes and threads of the host that starts leave unused."""

    keep_tombstones: Grace = 3_600.0
    """Seconds a destroyed sandbox is remembered, so that late calls with handles of it hear so."""

    reap_interval: Seconds = 30.0
    """Seconds between two comparisons of the store with what really runs."""


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Containers started ahead for sandboxes that are made later."""

    target: Spare = 0
    """How many of the default image and instance type are kept ready (also WARM_POOL_TARGET).
    Namespaces have targets of their own (`warm_pool`)."""

    max_warm: Spare = 50
    """Most that are kept ready of all kinds (also WARM_POOL_MAX_INSTANCES)."""

    batch: Count = 2
    """How many are made or removed at once: more would slow down those in use (also
    WARM_POOL_SCALE_BATCH_SIZE)."""

    refresh_interval: Seconds = 10.0
    """Seconds between two looks for what is missing, besides the one when a container is taken
    (also WARM_POOL_REFRESH_INTERVAL, in milliseconds)."""


class FaultSettings(msgspec.Struct, frozen=True, kw_only=True):
    """For tests of recovery only: the engine kills itself."""

    point: str | None = None
    """Where; None: nowhere. The names are in `atoll.engine.lifecycle.faults`."""

    passage: Count = 1
    """The how many-th time it comes there."""


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Background processes and their logs."""

    log_mib: Count = 64
    """MiB of output kept of one process; the oldest goes first."""

    logs_mib: Count = 256
    """MiB of output kept of all processes of one sandbox: finished ones give way first."""

    keep_finished: Grace = 3_600.0
    """Seconds a finished process with `auto_cleanup` is kept with its log."""

    keep_count: Spare = 1_000
    """Finished processes with `auto_cleanup` that one sandbox keeps at most."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Calls into Workers: hooks, methods, alarms."""

    hook_timeout: Seconds = 30.0
    """Seconds a hook may take; a start waits so long for `on_start`."""

    call_timeout: Seconds = 300.0
    """Seconds a method may take when its caller names no limit."""

    timer_timeout: Seconds = 900.0
    """Seconds an alarm, a schedule or a cron may take: as on the platform."""

    reload_grace: Seconds = 5.0
    """Seconds a Worker may be away, as during a reload, before calls into it fail."""

    ports_timeout: Seconds = 90.0
    """Seconds from a start until the required ports of a class answer."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All groups."""

    storage: StorageSettings = StorageSettings()
    backups: BackupSettings = BackupSettings()
    server: ServerSettings = ServerSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    cluster: ClusterSettings = ClusterSettings()
    network: NetworkSettings = NetworkSettings()
    images: ImageSettings = ImageSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    pool: PoolSettings = PoolSettings()
    processes: ProcessSettings = ProcessSettings()
    faults: FaultSettings = FaultSettings()
    workers: WorkerSettings = WorkerSettings()
    instance_types: dict[str, InstanceType] = msgspec.field(default_factory=INSTANCE_TYPES.copy)

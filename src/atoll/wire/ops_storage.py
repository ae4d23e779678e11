"""Operations on what is kept beside sandboxes: snapshots, backups, volumes, and mounts of buckets.

They are part of the table in `atoll.wire.ops`, and used from there.
"""

from atoll.wire import backups, disk, mounts, sandbox, snapshots, volumes
from atoll.wire.base import Done, Empty
from atoll.wire.keys import Scope
from atoll.wire.operation import NAMESPACE, SANDBOX, Kind, Op

_READ = Scope.READ

SNAPSHOTS = NAMESPACE + "/snapshots"
TAKE_SNAPSHOT = Op(
    "take_snapshot", "POST", SANDBOX + "/snapshots", snapshots.TakeSnapshot, snapshots.Snapshot
)
FORK = Op("fork_sandbox", "POST", SANDBOX + "/fork", snapshots.Fork, snapshots.ForkResult)
RESTORE = Op(
    "restore_snapshot", "POST", SANDBOX + "/restore", snapshots.RestoreSnapshot, sandbox.SandboxInfo
)
DIFF = Op(
    "diff_snapshot", "GET", SANDBOX + "/diff", snapshots.DiffRequest, snapshots.Diff, scope=_READ
)
PATCH = Op(
    "patch_snapshot", "GET", SANDBOX + "/diff/patch", snapshots.DiffRequest, snapshots.Patch,
    kind=Kind.DOWNLOAD, scope=_READ,
)  # fmt: skip
LIST_SNAPSHOTS = Op(
    "list_snapshots", "GET", SNAPSHOTS, snapshots.ListSnapshots, snapshots.SnapshotPage,
    scope=_READ,
)  # fmt: skip
GET_SNAPSHOT = Op(
    "get_snapshot", "GET", SNAPSHOTS + "/{snapshot}", Empty, snapshots.Snapshot, scope=_READ
)
EXPORT_SNAPSHOT = Op(
    "export_snapshot", "GET", SNAPSHOTS + "/{snapshot}/export", Empty, snapshots.Snapshot,
    kind=Kind.DOWNLOAD, scope=_READ,
)  # fmt: skip
IMPORT_SNAPSHOT = Op(
    "import_snapshot", "POST", SNAPSHOTS, Empty, snapshots.Snapshot, kind=Kind.UPLOAD
)
DELETE_SNAPSHOT = Op("delete_snapshot", "DELETE", SNAPSHOTS + "/{snapshot}", Empty, Done)

MOUNTS = SANDBOX + "/mounts"
MOUNT_BUCKET = Op("mount_bucket", "POST", MOUNTS, mounts.MountBucket, mounts.BucketMount)
UNMOUNT_BUCKET = Op("unmount_bucket", "DELETE", MOUNTS, mounts.UnmountBucket, Done)
LIST_MOUNTS = Op("list_mounts", "GET", MOUNTS, Empty, mounts.BucketMounts, scope=_READ)

DISK = Op("disk_usage", "GET", NAMESPACE + "/disk", disk.DiskQuery, disk.DiskUsage, scope=_READ)
COLLECT = Op("collect_garbage", "POST", "/v2/gc", disk.Collect, disk.Collected, scope=Scope.ADMIN)

BACKUPS = NAMESPACE + "/backups"
CREATE_BACKUP = Op(
    "create_backup", "POST", SANDBOX + "/backups", backups.CreateBackup, backups.DirectoryBackup
)
RESTORE_BACKUP = Op(
    "restore_backup", "POST", SANDBOX + "/backups/restore", backups.RestoreBackup, backups.Restored
)
LIST_BACKUPS = Op(
    "list_backups", "GET", BACKUPS, backups.ListBackups, backups.BackupPage, scope=_READ
)
GET_BACKUP = Op(
    "get_backup", "GET", BACKUPS + "/{backup}", Empty, backups.DirectoryBackup, scope=_READ
)
DELETE_BACKUP = Op("delete_backup", "DELETE", BACKUPS + "/{backup}", Empty, Done)


VOLUMES = NAMESPACE + "/volumes"
VOLUME = VOLUMES + "/{volume}"
VOLUME_FILES = VOLUME + "/files"
CREATE_VOLUME = Op("create_volume", "POST", VOLUMES, volumes.CreateVolume, volumes.VolumeInfo)
LIST_VOLUMES = Op(
    "list_volumes", "GET", VOLUMES, volumes.ListVolumes, volumes.VolumePage, scope=_READ
)
GET_VOLUME = Op("get_volume", "GET", VOLUME, Empty, volumes.VolumeInfo, scope=_READ)
RESIZE_VOLUME = Op("resize_volume", "PATCH", VOLUME, volumes.UpdateVolume, volumes.VolumeInfo)
PUBLISH_VOLUME = Op(
    "publish_volume", "POST", VOLUME + "/publish", volumes.PublishVolume, volumes.VolumeInfo
)
DELETE_VOLUME = Op("delete_volume", "DELETE", VOLUME, Empty, Done)
READ_VOLUME = Op(
    "read_volume", "GET", VOLUME_FILES, volumes.VolumePath, volumes.VolumeFile,
    kind=Kind.DOWNLOAD, scope=_READ,
)  # fmt: skip
WRITE_VOLUME = Op(
    "write_volume", "PUT", VOLUME_FILES, volumes.VolumePath, volumes.VolumeWritten,
    kind=Kind.UPLOAD,
)  # fmt: skip
LIST_VOLUME = Op(
    "list_volume", "GET", VOLUME_FILES + "/list", volumes.ListVolumeFiles,
    volumes.VolumeFileList, scope=_READ,
)  # fmt: skip
REMOVE_IN_VOLUME = Op("remove_in_volume", "DELETE", VOLUME_FILES, volumes.RemoveVolumeFile, Done)
MOVE_IN_VOLUME = Op("move_in_volume", "POST", VOLUME_FILES + "/move", volumes.MoveVolumeFile, Done)
MAKE_VOLUME_FOLDER = Op(
    "make_volume_folder", "POST", VOLUME_FILES + "/folders", volumes.MakeVolumeFolder, Done
)

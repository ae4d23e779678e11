"""The store's tables, as steps forward. A step is never changed once it was released.

`PRAGMA user_version` counts the steps a file has seen. All missing steps run in one transaction;
a file with more steps than this version knows is refused, never guessed at.
"""

import sqlite3

from atoll.errors import VersionMismatchError

STEPS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        """CREATE TABLE sandboxes (
            namespace TEXT NOT NULL, id TEXT NOT NULL, state TEXT NOT NULL,
            version INTEGER NOT NULL, host_ref TEXT UNIQUE, layer_id TEXT NOT NULL,
            expires_at REAL, body BLOB NOT NULL,
            PRIMARY KEY (namespace, id)) WITHOUT ROWID""",
        "CREATE INDEX sandboxes_live ON sandboxes (state) WHERE host_ref IS NOT NULL",
        "CREATE INDEX sandboxes_expiry ON sandboxes (expires_at) WHERE expires_at IS NOT NULL",
        "CREATE INDEX sandboxes_layer ON sandboxes (layer_id)",
        """CREATE TABLE sessions (
            namespace TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (namespace, id))""",
        "CREATE TABLE namespaces (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
        """CREATE TABLE keys (
            hash TEXT PRIMARY KEY, name TEXT NOT NULL, namespace TEXT, scope TEXT NOT NULL,
            created_at REAL NOT NULL) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE processes (
            uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, sandbox TEXT NOT NULL,
            id TEXT NOT NULL, layer_id TEXT NOT NULL, key TEXT, live INTEGER NOT NULL,
            body BLOB NOT NULL) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX processes_id ON processes (namespace, sandbox, id)",
        "CREATE INDEX processes_key ON processes (key) WHERE key IS NOT NULL",
    ),
    # Tombstones of before had no end.
    ("UPDATE sandboxes SET expires_at = 0 WHERE state = 'destroyed'",),
    # Nothing ever wrote a key before.
    (
        "DROP TABLE keys",
        "CREATE TABLE keys (id TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    ),
    (
        """CREATE TABLE events (
            namespace TEXT NOT NULL, sandbox TEXT NOT NULL, seq INTEGER NOT NULL,
            body BLOB NOT NULL, PRIMARY KEY (namespace, sandbox, seq)) WITHOUT ROWID""",
        """CREATE TABLE warm (
            host_ref TEXT PRIMARY KEY, layer_id TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE objects (
            uid TEXT PRIMARY KEY, namespace TEXT NOT NULL, id TEXT NOT NULL,
            gone INTEGER NOT NULL, started INTEGER NOT NULL, stopped INTEGER NOT NULL)
            WITHOUT ROWID""",
        "CREATE UNIQUE INDEX objects_live ON objects (namespace, id) WHERE gone = 0",
        "CREATE INDEX objects_id ON objects (namespace, id)",
        """CREATE TABLE timers (
            uid TEXT PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, id TEXT NOT NULL,
            next_try REAL NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
        "CREATE INDEX timers_next ON timers (next_try, uid)",
        "CREATE INDEX timers_owner ON timers (namespace, id)",
        "CREATE UNIQUE INDEX timers_alarm ON timers (namespace, id) WHERE kind = 'alarm'",
        "CREATE TABLE projects (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
        "CREATE TABLE classes (namespace TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID",
    ),
    (
        """CREATE TABLE ports (
            namespace TEXT NOT NULL, sandbox TEXT NOT NULL, port INTEGER NOT NULL,
            layer_id TEXT NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (namespace, sandbox, port)) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE snapshots (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
            namespace TEXT NOT NULL, sandbox TEXT NOT NULL, expires_at REAL,
            body BLOB NOT NULL)""",
        "CREATE INDEX snapshots_namespace ON snapshots (namespace, number)",
    ),
    (
        """CREATE TABLE backups (
            number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE,
            namespace TEXT NOT NULL, sandbox TEXT NOT NULL, expires_at REAL,
            body BLOB NOT NULL)""",
        "CREATE INDEX backups_namespace ON backups (namespace, number)",
    ),
    (
        """CREATE TABLE mounts (
            id TEXT PRIMARY KEY, namespace TEXT NOT NULL, sandbox TEXT NOT NULL,
            path TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX mounts_path ON mounts (namespace, sandbox, path)",
    ),
    (
        """CREATE TABLE volumes (
            namespace TEXT NOT NULL, name TEXT NOT NULL, layer_id TEXT NOT NULL UNIQUE,
            body BLOB NOT NULL, PRIMARY KEY (namespace, name)) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE tunnels (
            id TEXT PRIMARY KEY, namespace TEXT NOT NULL, sandbox TEXT NOT NULL,
            body BLOB NOT NULL) WITHOUT ROWID""",
    ),
    (
        """CREATE TABLE secrets (
            namespace TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
            PRIMARY KEY (namespace, name)) WITHOUT ROWID""",
    ),
    # Only engines that share their records have rows in it.
    (
        """CREATE TABLE places (
            namespace TEXT NOT NULL, sandbox TEXT NOT NULL, generation INTEGER NOT NULL,
            PRIMARY KEY (namespace, sandbox)) WITHOUT ROWID""",
    ),
)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the open file to this version's tables.

    Raises:
        VersionMismatchError: a newer Atoll wrote the file.
    """
    (seen,) = connection.execute("PRAGMA user_version").fetchone()
    if seen > len(STEPS):
        raise VersionMismatchError(
            f"the store has format {seen}, this version knows up to {len(STEPS)}",
            context={"format": seen, "known": len(STEPS)},
            suggestion="run the Atoll version that wrote it, or a newer one",
        )
    if seen == len(STEPS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for step in STEPS[seen:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise

"""The `bwrap` level: sandboxes of a user who is not root, by bubblewrap."""

#!/usr/bin/env bash
# Install what Atoll needs on Debian or Ubuntu: distribution packages (as root), then the Python
# environment. Safe to repeat; does nothing that is done already.
# Usage: setup.sh PYTHON VENV
set -euo pipefail

python=$1
venv=$2

# Debian gives users a PATH without these, and half of the programs are there.
PATH=$PATH:/usr/sbin:/sbin

# package:command that shows it is there
packages=(
  runc:runc btrfs-progs:mkfs.btrfs nftables:nft iproute2:ip
  mmdebstrap:mmdebstrap uidmap:newuidmap buildah:buildah skopeo:skopeo
  s3fs:s3fs rclone:rclone fuse3:fusermount3 bubblewrap:bwrap
  util-linux:setpriv zstd:zstd tar:tar
  ca-certificates:update-ca-certificates git:git
  # only tests need these
  busybox-static:busybox musl-tools:musl-gcc gcc:gcc strace:strace curl:curl procps:ps nginx-light:nginx wrk:wrk ripgrep:rg
)

missing=()
for entry in "${packages[@]}"; do
  command -v "${entry#*:}" >/dev/null || missing+=("${entry%%:*}")
done
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
  missing+=(python3-venv)
fi

# Not every distribution has it, and without it only level gvisor is missing.
optional=()
if [ "$(id -u)" = 0 ] && ! command -v runsc >/dev/null; then
  optional+=(runsc)
fi

if ((${#missing[@]} + ${#optional[@]})); then
  if [ "$(id -u)" != 0 ]; then
    echo "setup: these packages are missing and need root to install:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  for package in "${optional[@]}"; do
    if apt-cache show "$package" >/dev/null 2>&1; then missing+=("$package"); fi
  done
  echo "setup: installing ${missing[*]}"
  if ((${#missing[@]})); then
    apt-get install -y -q --no-install-recommends "${missing[@]}"
  fi
fi

"$python" - <<'PY'
import sys
if sys.version_info < (3, 11):
    sys.exit(f"setup: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
PY

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
echo "setup: installing Python packages into $venv (a minute or two)"
# Without -q, as that leaves the reason of some failures out; shown only if it fails.
if ! told=$("$venv/bin/python" -m pip install --disable-pip-version-check --no-input \
  -c constraints.txt -e '.[dev]' 2>&1); then
  printf '%s\n' "$told" "setup: pip failed; what it said is above" >&2
  exit 1
fi

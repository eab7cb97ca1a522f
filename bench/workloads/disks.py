"""What kind of disk a folder is on, and reads that really come from it."""

import os
import re
import shutil
import tempfile
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
SYS = Path("/sys")
IO_COUNTERS = Path("/proc/self/io")

NVME = "NVMe SSD"
SSD = "SSD"
ROTATING = "rotating disk"
VIRTUAL = "virtual disk"
NETWORK = "network mount"
RAM = "RAM"
UNKNOWN = "unknown disk"

_RAM_FILE_SYSTEMS = {"tmpfs", "ramfs", "hugetlbfs"}
_NETWORK_FILE_SYSTEMS = {
    *("nfs", "nfs4", "cifs", "smb3", "ceph", "glusterfs", "lustre", "beegfs", "gpfs", "9p"),
    *("virtiofs", "afs", "fuse.sshfs", "fuse.s3fs", "fuse.gcsfuse", "fuse.glusterfs"),
}
_PROBE_BYTES = 1 << 20


def disk_kind(folder: Path) -> str:
    """NVME, SSD, ROTATING, VIRTUAL, NETWORK, RAM, or UNKNOWN where the system doesn't tell.

    A virtual machine's disk says "rotating" whatever is behind it, so it is a kind of its own.
    """
    device, file_system, source = _mount(folder)
    if file_system in _RAM_FILE_SYSTEMS:
        return RAM
    if file_system in _NETWORK_FILE_SYSTEMS:
        return NETWORK
    if device.startswith("0:") and source.startswith("/dev/"):
        # Btrfs and others give the mount an anonymous number; the source still names the device.
        try:
            number = Path(source).stat().st_rdev
        except OSError:
            return UNKNOWN
        device = f"{os.major(number)}:{os.minor(number)}"
    return _device_kind(SYS / "dev" / "block" / device)


def why_not_cold(folder: Path) -> str | None:
    """Why files in ``folder`` can't be read cold in a way that can be proved, or None.

    Tried on a file of its own: written, dropped from the page cache, read, and the bytes that the
    kernel fetched from the device counted.
    """
    if not hasattr(os, "posix_fadvise") or not os.access(IO_COUNTERS, os.R_OK):
        return "cold reads need Linux, with posix_fadvise and /proc/self/io"
    kind = disk_kind(folder)
    if kind == RAM:
        return "a file system in RAM has no cold reads"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            before = bytes_from_device()
            file.seek(0)
            file.read()
            fetched = bytes_from_device() - before
    except OSError as error:
        return f"the {kind} can't be written to ({error.strerror})"
    if fetched < _PROBE_BYTES:
        return f"the {kind} can't be shown to be read cold (its reads are not counted, or cached)"
    return None


def why_no_room(folder: Path, wanted_bytes: int) -> str | None:
    """Why ``wanted_bytes`` more should not be written into ``folder``, or None."""
    free = shutil.disk_usage(folder).free
    if free >= 2 * wanted_bytes:
        return None
    return (
        f"the {disk_kind(folder)} has {free >> 20} MiB free, "
        f"twice the {wanted_bytes >> 20} MiB to be written is needed"
    )


def drop_from_page_cache(path: Path) -> None:
    """Have the next read of a file that is written out come from its device; needs no root."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def bytes_from_device() -> int:
    """Bytes that this process has had fetched from block devices (Linux, /proc/self/io)."""
    for line in IO_COUNTERS.read_text().splitlines():
        name, _, value = line.partition(": ")
        if name == "read_bytes":
            return int(value)
    raise OSError(f"{IO_COUNTERS} has no read_bytes")


def _mount(folder: Path) -> tuple[str, str, str]:
    """Device number, file system and source of the mount that holds ``folder``."""
    if not MOUNTS.exists():
        return "", "", ""
    target = folder.resolve()
    best = ("", "", "")
    best_length = -1
    for line in MOUNTS.read_text().splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split(" ")
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        # A later mount on the same point covers the earlier one.
        if target.is_relative_to(point) and len(point) >= best_length:
            file_system, source = right.split(" ")[:2]
            best, best_length = (fields[2], file_system, source), len(point)
    return best


def _device_kind(link: Path) -> str:
    if not link.exists():
        return UNKNOWN
    device = link.resolve()
    if (device / "partition").exists():
        device = device.parent
    slaves = device / "slaves"
    parts = [part.resolve() for part in slaves.iterdir()] if slaves.is_dir() else []
    if parts:
        # LVM, encryption and RAID: as slow as the slowest disk below.
        kinds = {_device_kind(part) for part in parts}
        return next(kind for kind in (UNKNOWN, VIRTUAL, ROTATING, SSD, NVME, RAM) if kind in kinds)
    if device.name.startswith("nvme"):
        return NVME
    if device.name.startswith(("vd", "xvd")):
        return VIRTUAL
    if device.name.startswith(("zram", "ram")):
        return RAM
    try:
        rotational = (device / "queue" / "rotational").read_text().strip()
    except OSError:
        return UNKNOWN
    return ROTATING if rotational == "1" else SSD

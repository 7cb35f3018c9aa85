"""Loss of power: what a service finds if only synced data is certain to be on the disk.

``python tests/powerloss.py N [SEED]`` records the system calls of a service that learns, by strace.
It then builds N folders as a loss of power could have left them, each at a random moment.  What was
synced is there.  Of what was written since the last sync, some is there, some is not, and some is
torn at a sector.  Names that were made, renamed or removed since their folder was synced come in
their order, and stop somewhere.  A service must start on each folder, and must have every change
that was acknowledged before that moment, once, and in order.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fake_tagger import FakeTagger
from tagstream.serve.writer import Change, Service

CALLS = (
    "write,pwrite64,writev,ftruncate,truncate,fsync,fdatasync,rename,renameat,renameat2,unlink,"
    "unlinkat,openat,open,creat,mkdir,mkdirat,close,sendfile,copy_file_range,fallocate"
)
SECTOR = 512
LINE = re.compile(r"^(\d+) +(.*)$")
CALL = re.compile(r"^(\w+)\((.*)\) += (-?\d+)")
WITH_PATH = re.compile(r"^(-?\d+)<([^>]*)>")
HEX = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class SyncedTagger(FakeTagger):
    """The quick tagger, which saves as the real one does: sync, rename, sync the folder."""

    def save(self, path: Any) -> None:
        super().save(new := f"{path}.whole")
        with open(new, "rb") as file:
            os.fsync(file.fileno())
        os.replace(new, path)
        folder = os.open(Path(path).parent, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)


def change_of(i: int) -> Change:
    """The i-th change; changes of one kind are not alike."""
    if i % 11 == 10:
        return Change("forget", [{"id": f"{i - 3}"}], [f"k{i}"])
    text = f"text {i} " * (1 + i % 40)
    return Change("learn", [{"id": f"{i}", "text": text, "y": [f"t{i % 7}"]}], [f"k{i}"])


def tagger_type(is_real: bool) -> Any:
    if not is_real:
        return SyncedTagger
    from tagstream.tagger import Tagger

    return Tagger


def learn(folder: Path, n: int, is_real: bool) -> None:
    """What is recorded: n changes, two starts; ``ack N`` on descriptor 1 after each answer."""
    for part in (range(n // 2), range(n // 2, n)):
        with Service(folder, tagger_type(is_real), snapshot_events=n // 6) as service:
            for i in part:
                service.submit(change_of(i)).result(600)
                os.write(1, f"ack {i}\n".encode())


# ---------------------------------------------------------------------- the record
@dataclass(frozen=True)
class Call:
    """One call that matters: its name, path, data and the like."""

    name: str
    path: str
    data: bytes = b""
    at: int = -1  # place in the file; -1: at the end of what was written through this descriptor
    other: str = ""  # the new name, or the number of an acknowledgement
    inode: Inode | None = None  # the file that is made


def record(folder: Path, n: int, is_real: bool) -> list[Call]:
    """Run the service under strace and return what it did to its folder."""
    trace = folder.with_suffix(".strace")
    command = [
        "strace", "-f", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", str(trace),
        sys.executable, __file__, "--learn", str(folder), str(n), str(int(is_real)),
    ]  # fmt: skip
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    with open(trace, encoding="latin-1") as lines:
        calls = [*parse(lines, str(folder))]
    trace.unlink()
    return calls


def parse(lines: Any, folder: str) -> Iterator[Call]:
    begun: dict[str, str] = {}
    for line in lines:
        found = LINE.match(line)
        if not found:
            continue
        process, text = found.groups()
        if text.endswith("<unfinished ...>"):
            begun[process] = text.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = re.match(r"^<\.\.\. \w+ resumed>(.*)$", text)
        if resumed:
            text = begun.pop(process) + resumed[1]
        call = CALL.match(text)
        if call and int(call[3]) >= 0:
            yield from of_interest(call[1], call[2], folder)


def unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def of_interest(name: str, text: str, folder: str) -> Iterator[Call]:
    """Turn a line of strace into a call on the folder, if it is one."""
    named = WITH_PATH.match(text)
    path = unhex(named[2]).decode() if named and "\\x" in named[2] else (named[2] if named else "")
    strings = [unhex(found) for found in HEX.findall(text.partition(">")[2] if named else text)]
    if name == "write" and named and named[1] == "1" and strings[0].startswith(b"ack "):
        yield Call("ack", "", other=strings[0][4:].decode().strip())
    elif name in ("rename", "renameat", "renameat2"):
        old, new = (part.decode() for part in hex_strings(text))
        if old.startswith(folder):
            yield Call("rename", old, other=new)
    elif name in ("unlink", "unlinkat", "mkdir", "mkdirat"):
        target = hex_strings(text)[0].decode()
        if target.startswith(folder):
            yield Call(name.removesuffix("at"), target)
    elif name in ("open", "openat", "creat"):
        target = hex_strings(text)[0].decode()
        if target.startswith(folder) and ("O_CREAT" in text or name == "creat"):
            yield Call("create", target, other="truncate" if "O_TRUNC" in text else "")
    elif path.startswith(folder):
        if name in ("fsync", "fdatasync"):
            yield Call("sync", path)
        elif name == "pwrite64":
            yield Call("write", path, strings[0], int(text.rpartition(",")[2]))
        elif name == "write":
            yield Call("write", path, strings[0])
        elif name == "ftruncate":
            yield Call("truncate", path, at=int(text.rpartition(",")[2]))
        elif name in ("writev", "truncate", "sendfile", "copy_file_range", "fallocate"):
            raise NotImplementedError(f"{name} of {path}")


def hex_strings(text: str) -> list[bytes]:
    return [unhex(found) for found in HEX.findall(text)]


# ---------------------------------------------------------------------- the disk
@dataclass
class Inode:
    """A file: what is certain, what was written since, and what a reader sees."""

    synced: bytearray = field(default_factory=bytearray)
    later: list[tuple[str, int, bytes]] = field(default_factory=list)
    now: bytearray = field(default_factory=bytearray)

    def do(self, what: str, at: int, data: bytes) -> None:
        at = len(self.now) if at < 0 else at
        self.later.append((what, at, data))
        apply(self.now, what, at, data)

    def sync(self) -> None:
        self.synced, self.later = bytearray(self.now), []

    def after_loss(self, rng: random.Random) -> bytearray:
        """Return what could be on the disk."""
        kept = bytearray(self.synced)
        share = rng.choice([0.0, 0.5, 0.9, 1.0])
        for what, at, data in self.later:
            if rng.random() >= share:
                continue
            if what == "write" and rng.random() < 0.2:  # some of its sectors
                for start in range(0, len(data), SECTOR):
                    if rng.random() < 0.5:
                        apply(kept, what, at + start, data[start : start + SECTOR])
            else:
                apply(kept, what, at, data)
        return kept


def apply(content: bytearray, what: str, at: int, data: bytes) -> None:
    if what == "truncate":
        del content[at:]
        content.extend(bytes(at - len(content)))
        return
    content.extend(bytes(max(0, at - len(content))))
    content[at : at + len(data)] = data


class Disk:
    """Files and names under one folder, as they are and as they are certain to be."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: dict[str, Inode] = {}
        self.folders: set[str] = {folder}
        self.certain: dict[str, Inode] = {}
        self.certain_folders: set[str] = {folder}
        self.later: list[Call] = []  # changes of names since their folder was synced

    def do(self, call: Call) -> None:
        if call.name == "write":
            self.names[call.path].do("write", call.at, call.data)
        elif call.name == "truncate":
            self.names[call.path].do("truncate", call.at, b"")
        elif call.name == "sync" and call.path in self.folders:
            for done in [c for c in self.later if os.path.dirname(c.path) == call.path]:
                change_names(self.certain, self.certain_folders, done)
                self.later.remove(done)
        elif call.name == "sync":
            self.names[call.path].sync()
        elif call.name == "create" and call.path in self.names:
            if call.other == "truncate":
                self.names[call.path].do("truncate", 0, b"")
        else:
            if call.name == "create":
                call = replace(call, inode=Inode())
            change_names(self.names, self.folders, call)
            self.later.append(call)

    def after_loss(self, target: Path, rng: random.Random) -> None:
        """Write a folder as a loss of power could leave it."""
        names, folders = dict(self.certain), set(self.certain_folders)
        for call in self.later[: rng.randint(0, len(self.later))]:
            change_names(names, folders, call)
        for name in sorted(folders):
            (target / os.path.relpath(name, self.folder)).mkdir(parents=True, exist_ok=True)
        for name, inode in names.items():
            path = target / os.path.relpath(name, self.folder)
            if path.parent.is_dir():
                path.write_bytes(inode.after_loss(rng))


def change_names(names: dict[str, Inode], folders: set[str], call: Call) -> None:
    """Make, rename or remove a file, or make a folder."""
    if call.name == "mkdir":
        folders.add(call.path)
    elif call.name == "unlink":
        names.pop(call.path, None)
    elif call.inode is not None:
        names[call.path] = call.inode
    elif call.path in names:
        names[call.other] = names.pop(call.path)


# ---------------------------------------------------------------------- the check
def check(folder: Path, acknowledged: int, is_real: bool) -> str:
    """Start a service on the folder; return how it went, or raise."""
    with Service(folder, tagger_type(is_real)) as service:
        keys = [event.key for event in service.log.after(0) if event.refused is None]
        wanted = [f"k{i}" for i in range(len(keys))]
        assert keys == wanted, f"{keys[:3]}… are not the first changes"
        assert len(keys) >= acknowledged, f"{acknowledged - len(keys)} changes are lost"
        if not is_real:
            whole = SyncedTagger()
            for event in service.log.after(0):
                if event.kind == "learn":
                    whole.learn([event.body])
                else:
                    whole.change(event.kind, **event.body)
            assert service._tagger.state() == whole.state()
        service.submit(change_of(10_001)).result(600)
        n = len(keys)
    with Service(folder, tagger_type(is_real)) as service:
        assert service.log.position == n + 1
    return "some unacknowledged changes survived" if n > acknowledged else "exactly what was told"


def attack(n: int, seed: int, n_changes: int = 120, is_real: bool = False) -> Counter[str]:
    """Record once, lose power n times; return how often each outcome came."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch).resolve() / "folder"
        folder.mkdir()
        calls = record(folder, n_changes, is_real)
        moments = Counter(rng.randrange(len(calls) + 1) for _ in range(n))
        disk, acknowledged = Disk(str(folder)), 0
        for number, call in enumerate([*calls, Call("end", "")]):
            for _ in range(moments[number]):
                left = Path(scratch) / "left"
                disk.after_loss(left, rng)
                with contextlib.ExitStack() as cleanup:
                    cleanup.callback(shutil.rmtree, left)
                    outcomes[check(left, acknowledged, is_real)] += 1
            if call.name == "ack":
                acknowledged = int(call.other) + 1
            elif call.name != "end":
                disk.do(call)
        assert acknowledged == n_changes
    return outcomes


if __name__ == "__main__":
    if sys.argv[1] == "--learn":
        learn(Path(sys.argv[2]), int(sys.argv[3]), bool(int(sys.argv[4])))
    else:
        logging.disable(logging.ERROR)
        seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
        print(attack(int(sys.argv[1]), seed, is_real="--real" in sys.argv))

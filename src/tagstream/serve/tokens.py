"""Who may do what: bearer tokens with roles, kept as hashes in one small file.

A token is 256 random bits, so a plain SHA-256 keeps it safe: there is nothing to guess.  It is
shown once, when it is made.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import threading
import time
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["ORIGIN", "ROLES", "Token", "Tokens"]

# Who makes the changes of this task, and what they come through.
ORIGIN: ContextVar[tuple[str, str]] = ContextVar("origin", default=("local", "library"))

ROLES = ("read", "write", "admin")
PREFIX = "tgs_"


@dataclass(frozen=True)
class Token:
    """One token, without its secret.

    Attributes
    ----------
    name : str
        Who has it; in the log of the service.
    role : str
        ``read`` (ask), ``write`` (and learn) or ``admin`` (and change tags, snapshot).
    digest : str
        SHA-256 of the secret, hexadecimal.
    made : float
        Seconds since 1970.
    """

    name: str
    role: str
    digest: str
    made: float

    def may(self, role: str) -> bool:
        """Return whether this token has at least a role."""
        return ROLES.index(self.role) >= ROLES.index(role)


class Tokens:
    """The tokens of one folder; a change made by another process is seen at once.

    Parameters
    ----------
    path : Path
        The file; it is there once a token was added.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> tokens = Tokens(Path(folder.name) / "tokens.json")
    >>> secret = tokens.add("anna", "write")
    >>> tokens.find(secret).name, tokens.find("guess")
    ('anna', None)
    >>> tokens.revoke("anna"), len(tokens)
    (True, 0)
    >>> folder.cleanup()
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = threading.RLock()  # for who looks first and changes then
        self._stamp: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    @property
    def all(self) -> tuple[Token, ...]:
        """The tokens, oldest first."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return ()
        stamp = (found.st_ino, found.st_mtime_ns, found.st_size)
        if stamp != self._stamp:
            try:
                kept = json.loads(self.path.read_text(encoding="utf-8"))
                self._tokens = tuple(Token(**entry) for entry in kept)
            except (ValueError, TypeError) as error:
                raise OSError(f"{self.path} must be a list of tokens, got damage") from error
            self._stamp = stamp
        return self._tokens

    def __len__(self) -> int:
        return len(self.all)

    def find(self, secret: str) -> Token | None:
        """Return the token of a secret; the time does not tell how near a guess was."""
        digest = hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
        found = None
        for token in self.all:
            if hmac.compare_digest(token.digest, digest):
                found = token
        return found

    def add(self, name: str, role: str) -> str:
        """Make a token and return its secret, which is kept nowhere.

        Raises
        ------
        ValueError
            There is no such role, or the name is taken or empty.
        """
        if role not in ROLES:
            raise ValueError(f"role must be one of {', '.join(ROLES)}, got {role!r}")
        if not name or not name.isprintable() or len(name) > 100:
            raise ValueError(f"name must be 1 to 100 printable characters, got {name!r}")
        if any(token.name == name for token in self.all):
            raise ValueError(f"name must be new, got {name!r}; revoke the old one first")
        secret = PREFIX + secrets.token_urlsafe(32)
        digest = hashlib.sha256(secret.encode()).hexdigest()
        self._write((*self.all, Token(name, role, digest, time.time())))
        return secret

    def revoke(self, name: str) -> bool:
        """Take a token back; return whether there was one of this name."""
        left = tuple(token for token in self.all if token.name != name)
        if len(left) == len(self.all):
            return False
        self._write(left)
        return True

    def _write(self, tokens: tuple[Token, ...]) -> None:
        text = json.dumps([asdict(token) for token in tokens], indent=1) + "\n"
        new = self.path.with_name(self.path.name + ".new")
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        finally:
            new.unlink(missing_ok=True)
        # Without this a loss of power can bring a revoked token back.
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

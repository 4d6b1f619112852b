"""The store: what earlier checks were answered, and what failed, in the cache directory.

It is a database that may go at any time: what cannot be read is judged anew, and what cannot be
written is forgotten. Several commands may use it at once.
"""

import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FORMAT = 1
"""Goes up with every change of the tables or of what is in them."""
FILE = f"results-{_FORMAT}.sqlite3"
MOST_BYTES = 1 << 28
"""Bytes of answers that are kept; those of the trees that were not judged for longest go first."""
MOST_TARGETS = 100
"""Targets whose failures are kept."""
_BUSY_SECONDS = 10.0
_TABLES = """
CREATE TABLE trees (
    id INTEGER PRIMARY KEY AUTOINCREMENT, context BLOB NOT NULL, surroundings BLOB NOT NULL,
    files BLOB NOT NULL, used REAL NOT NULL, size INTEGER NOT NULL);
CREATE INDEX trees_by_context ON trees (context);
CREATE TABLE surroundings (digest BLOB PRIMARY KEY, files BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE answers (
    tree INTEGER NOT NULL, question BLOB NOT NULL, answer BLOB NOT NULL, made REAL NOT NULL,
    PRIMARY KEY (tree, question)) WITHOUT ROWID;
CREATE TABLE runs (
    tree INTEGER NOT NULL, questions BLOB NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (tree, questions)) WITHOUT ROWID;
CREATE TABLE failures (
    target TEXT NOT NULL, signature TEXT NOT NULL, failure TEXT NOT NULL, made REAL NOT NULL,
    PRIMARY KEY (target, signature)) WITHOUT ROWID;
"""
_ALL_TABLES = {"trees", "surroundings", "answers", "runs", "failures"}


@dataclass(frozen=True)
class Tree:
    """A tree that was judged.

    Attributes:
        number: its number in the store.
        surroundings: a digest of what its process read that is not of the tree.
        files: what it read of the tree, by path, with a digest each.
    """

    number: int
    surroundings: bytes
    files: Mapping[str, str]


@dataclass(frozen=True)
class Kept:
    """An answer that is kept, as JSON, and when it was made, in seconds since 1970."""

    answer: str
    made: float


class Store:
    """The store in a directory. ``announce`` gets a sentence if it is damaged and was deleted."""

    def __init__(self, directory: Path, announce: Callable[[str], None]) -> None:
        self._path = directory / FILE
        self._announce = announce
        self._lock = threading.Lock()
        self._database = _connected(":memory:")
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._open()
        except (sqlite3.OperationalError, OSError):  # cannot be used; this one ends with us
            return
        except sqlite3.DatabaseError:
            self._discard()

    def close(self) -> None:
        """Close it."""
        with self._lock:
            self._database.close()

    def trees(self, context: bytes) -> list[Tree]:
        """The trees that were judged in a context, the last one first."""
        found = []
        with self._using() as database:
            for number, around, files in database.execute(
                "SELECT id, surroundings, files FROM trees WHERE context = ? ORDER BY used DESC",
                (context,),
            ):
                found.append(Tree(number, around, _unpacked(files)))
        return found

    def surroundings(self, digest: bytes) -> dict[str, str] | None:
        """What a process read that is not of its tree, by path, with a digest each."""
        query = "SELECT files FROM surroundings WHERE digest = ?"
        with self._using() as database:
            for (files,) in database.execute(query, (digest,)):
                found: dict[str, str] = _unpacked(files)
                return found
        return None

    def answer(self, tree: int, question: bytes) -> Kept | None:
        """What was answered to a question about a tree."""
        query = "SELECT answer, made FROM answers WHERE tree = ? AND question = ?"
        with self._using() as database:
            for answer, made in database.execute(query, (tree, question)):
                return Kept(zlib.decompress(answer).decode(), float(made))
        return None

    def seconds(self, tree: int, questions: bytes) -> float | None:
        """How long it took to get these answers."""
        query = "SELECT seconds FROM runs WHERE tree = ? AND questions = ?"
        with self._using() as database:
            for (seconds,) in database.execute(query, (tree, questions)):
                return float(seconds)
        return None

    def keep_tree(
        self,
        known: int | None,
        context: bytes,
        around: tuple[bytes, Mapping[str, str]],
        files: Mapping[str, str],
    ) -> int | None:
        """Keep a tree, or what more was read of a ``known`` one; gives its number."""
        digest, read = around
        with self._using() as database, database:
            packed_read, packed = _packed(read), _packed(files)
            database.execute(
                "INSERT OR IGNORE INTO surroundings VALUES (?, ?)", (digest, packed_read)
            )
            added = database.execute(
                "INSERT INTO trees VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
                "surroundings = excluded.surroundings, files = excluded.files",
                (known, context, digest, packed, time.time(), len(packed) + len(packed_read)),
            )
            return added.lastrowid if known is None else known
        return None

    def keep_answers(self, tree: int, answers: Mapping[bytes, str]) -> None:
        """Keep answers, as JSON, about a tree, and that it was judged now."""
        now = time.time()
        with self._using() as database, database:
            packed = [
                (tree, question, zlib.compress(answer.encode(), 1), now)
                for question, answer in answers.items()
            ]
            database.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", packed)
            database.execute(
                "UPDATE trees SET used = ?, size = size + ? WHERE id = ?",
                (now, sum(len(each) for _, _, each, _ in packed), tree),
            )
            _prune(database, tree)

    def keep_seconds(self, tree: int, questions: bytes, seconds: float) -> None:
        """Keep how long it took to get these answers."""
        with self._using() as database, database:
            database.execute(
                "INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", (tree, questions, seconds)
            )

    def failures(self, target: str) -> tuple[dict[str, Any], float]:
        """What failed the last time, by the names of the signatures, and when that was."""
        query = "SELECT signature, failure, made FROM failures WHERE target = ? ORDER BY signature"
        found, last = {}, 0.0
        with self._using() as database:
            for signature, failure, made in database.execute(query, (target,)):
                found[signature], last = json.loads(failure), max(last, made)
        return found, last

    def keep_failures(self, target: str, failures: Mapping[str, Any]) -> None:
        """Keep what fails now, in place of what did."""
        now = time.time()
        with self._using() as database, database:
            database.execute("DELETE FROM failures WHERE target = ?", (target,))
            rows = [(target, name, json.dumps(each), now) for name, each in failures.items()]
            database.executemany("INSERT INTO failures VALUES (?, ?, ?, ?)", rows)
            database.execute(
                "DELETE FROM failures WHERE target NOT IN (SELECT target FROM failures "
                "GROUP BY target ORDER BY max(made) DESC LIMIT ?)",
                (MOST_TARGETS,),
            )

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The database; where it cannot be used, the body ends early."""
        with self._lock:
            try:
                yield self._database
            except sqlite3.OperationalError as error:  # locked, full, or not to be written
                if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    self._give_up()  # the next statement would wait as long
            except (sqlite3.DatabaseError, zlib.error, ValueError, TypeError):
                self._discard()

    def _open(self) -> None:
        database = _connected(self._path)
        self._database.close()
        self._database = database

    def _give_up(self) -> None:
        """Go on with one that ends with us."""
        self._database.close()
        self._database = _connected(":memory:")

    def _discard(self) -> None:
        """Make it anew."""
        self._give_up()
        try:
            self._path.unlink(missing_ok=True)
            self._announce(f"{self._path} was damaged, so it was deleted; all is judged anew")
            self._open()
        except (sqlite3.Error, OSError):
            return


def _connected(path: Path | str) -> sqlite3.Connection:
    """A connection; the tables are there. Raises `sqlite3.Error`."""
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        if _tables(database) != _ALL_TABLES:
            _make(database)
    except BaseException:
        database.close()
        raise
    return database


def _make(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA auto_vacuum = FULL")  # so that the file gets smaller, too
    database.execute("BEGIN EXCLUSIVE")
    found = _tables(database)
    if found != _ALL_TABLES:  # nobody else has made them meanwhile
        for name in found:
            database.execute(f'DROP TABLE "{name}"')
        for statement in filter(str.strip, _TABLES.split(";")):
            database.execute(statement)
    database.commit()


def _tables(database: sqlite3.Connection) -> set[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    return {name for (name,) in database.execute(query)}


def _prune(database: sqlite3.Connection, but: int) -> None:
    """Forget trees, those that were not judged for longest first, until the rest is small."""
    trees = database.execute("SELECT id, size FROM trees ORDER BY used DESC").fetchall()
    kept = 0
    for number, size in trees:
        kept += size
        if kept > MOST_BYTES and number != but:
            for table, column in (("trees", "id"), ("answers", "tree"), ("runs", "tree")):
                database.execute(f"DELETE FROM {table} WHERE {column} = ?", (number,))
    database.execute(
        "DELETE FROM surroundings WHERE digest NOT IN (SELECT surroundings FROM trees)"
    )


def _packed(value: Any) -> bytes:
    return zlib.compress(json.dumps(value).encode(), 1)


def _unpacked(packed: bytes) -> Any:
    return json.loads(zlib.decompress(packed))

"""The statements on what stands beside the log: units and answers, how alarms went, who
runs objects, who may ask, who serves."""

from collections.abc import Sequence

from reservation_expiry.infrastructure.stores.row_types import (
    AnswerRow,
    AttemptRow,
    ItemRow,
    LineRow,
    OwnedRow,
    OwnerRow,
    ServerRow,
    TokenRow,
)
from reservation_expiry.infrastructure.stores.sql.statements import Statements
from reservation_expiry.infrastructure.stores.sql.tables import (
    ANSWERS,
    ATTEMPTS,
    ITEMS,
    LINES,
    OWNERS,
    SERVERS,
    TOKENS,
)

_ACQUIRE = """
INSERT INTO ownerships (id, owner, wanted) VALUES (?, ?, 0)
ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, wanted = 0
WHERE ownerships.owner = excluded.owner OR NOT EXISTS (
    SELECT 1 FROM owners WHERE token = ownerships.owner AND until_ms > ?)"""
_OWNED = """
SELECT ownerships.id, owner, version, alarm_at_ms
FROM ownerships LEFT JOIN objects ON objects.id = ownerships.id WHERE """
_RENEW_OWNER = """
INSERT INTO owners (token, until_ms, process) VALUES (?, ?, ?)
ON CONFLICT (token) DO UPDATE SET until_ms = excluded.until_ms"""

_FORGET_ATTEMPTS = """
DELETE FROM attempts WHERE id IN (SELECT id FROM attempts WHERE id < ? ORDER BY id LIMIT ?)"""
_OVERDUE_OF = """
SELECT hold FROM lines WHERE item = ? AND due_at_ms <= ? ORDER BY due_at_ms, hold"""


class BesideTheLog(Statements):
    """Raises as `Session` does."""

    # Units of items, and answers

    def items(self, names: Sequence[str]) -> list[ItemRow]:
        among, wanted = self._among("name", names)
        return self._fetch(f"SELECT {ITEMS.selected} FROM items WHERE {among}", (wanted,))

    def put_items(self, rows: Sequence[ItemRow]) -> None:
        self._put(ITEMS, rows)

    def put_lines(self, rows: Sequence[LineRow]) -> None:
        self._put(LINES, rows)

    def delete_lines(self, ids: Sequence[str]) -> None:
        self._delete("lines", ids)

    def overdue_of(self, item: str, now_ms: int) -> list[str]:
        """Names of the holds with a line of the item whose time was up and that have not
        been ended."""
        return [row[0] for row in self._fetch(_OVERDUE_OF, (item, now_ms))]

    def answer(self, key: str) -> AnswerRow | None:
        select = f"SELECT {ANSWERS.selected} FROM answers WHERE id = ?"
        found: AnswerRow | None = self._one(select, (key,))
        return found

    def put_answers(self, rows: Sequence[AnswerRow]) -> None:
        self._put(ANSWERS, rows)

    def forget_answers(self, before_ms: int) -> None:
        self._write("answers", "DELETE FROM answers WHERE at_ms < ?", (before_ms,))

    # How attempts at alarms ended

    def put_attempts(self, rows: Sequence[AttemptRow]) -> None:
        self._put(ATTEMPTS, rows)

    def forget_attempts(self, before_id: str, limit: int) -> int:
        """Deletes the oldest of those before an id. How many there were."""
        return self._run(_FORGET_ATTEMPTS, (before_id, limit))

    # Who runs which object

    def owned(self, object_ids: Sequence[str]) -> list[OwnedRow]:
        """Those of these objects that somebody has, with their rows."""
        among, wanted = self._among("ownerships.id", object_ids)
        return self._fetch(_OWNED + among, (wanted,))

    def acquire(self, object_id: str, owner: str, now_ms: int) -> bool:
        """Makes the object the owner's unless another has it, who is then asked for it."""
        if self._run(_ACQUIRE, (object_id, owner, now_ms)) == 1:
            return True
        self._run("UPDATE ownerships SET wanted = 1 WHERE id = ? AND wanted = 0", (object_id,))
        return False

    def owners(self) -> list[OwnerRow]:
        return self._fetch(f"SELECT {OWNERS.selected} FROM owners")

    def renew_owner(self, row: OwnerRow) -> None:
        self._write("owners", _RENEW_OWNER, row)

    def forget_owners(self, tokens: Sequence[str]) -> None:
        """Their objects are free."""
        self._delete("ownerships", tokens, key="owner")
        self._delete("owners", tokens, key="token")

    def free_objects(self, object_ids: Sequence[str], owner: str) -> None:
        """These objects of the owner's are free."""
        among, wanted = self._among("id", object_ids)
        freed = f"DELETE FROM ownerships WHERE {among} AND owner = ?"
        self._write("ownerships", freed, (wanted, owner))

    # Who may ask

    def tokens(self) -> list[TokenRow]:
        return self._fetch(f"SELECT {TOKENS.selected} FROM tokens ORDER BY created_at_ms, id")

    def put_token(self, row: TokenRow) -> None:
        self._put(TOKENS, [row])

    # Who serves it

    def note_server(self, row: ServerRow, forget_before_ms: int) -> None:
        self._put(SERVERS, [row])
        self._write("servers", "DELETE FROM servers WHERE seen_at_ms < ?", (forget_before_ms,))

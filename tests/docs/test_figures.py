"""Figures in the documents are the constants of the code; timeouts stand in the order that
they must have.

A figure is written twice on purpose: whoever changes a constant is told here which sentences
say it.
"""

import re
from pathlib import Path

import pytest

from reservation_expiry.api import (
    connections,
    front,
    limits,
    problems,
    processes,
    read_routes,
    server,
)
from reservation_expiry.domain import alarm, ids, reservation, schedule
from reservation_expiry.infrastructure import async_reservations, readiness, settings, writer
from reservation_expiry.infrastructure.alarms import dispatcher, scheduler
from reservation_expiry.infrastructure.machine import output
from reservation_expiry.infrastructure.objects import (
    alarm_crowd,
    alarms,
    changes,
    event_schedule,
    host,
    ownership,
    residents,
    schedule_pass,
    storage,
    tasks,
    transaction,
    values,
)
from reservation_expiry.infrastructure.replay import remake
from reservation_expiry.infrastructure.stores.postgres import database as postgres
from reservation_expiry.infrastructure.stores.postgres import reader_pool, session
from reservation_expiry.infrastructure.stores.postgres import settings as postgres_settings
from reservation_expiry.infrastructure.stores.sql import pages
from reservation_expiry.infrastructure.stores.sqlite import database as sqlite

ROOT = Path(__file__).parents[2]
WORDS = {7: "seven", 16: "sixteen"}


def seconds(*figures: float) -> str:
    """3, 4, 7.5 s"""
    return f"{', '.join(f'{figure:g}' for figure in figures)} s"


def ms(*figures: float) -> str:
    return seconds(*(figure / 1000 for figure in figures))


def size(figure: int) -> str:
    """16 MiB, or 64 KiB"""
    return f"{figure >> 20} MiB" if figure >= 1 << 20 else f"{figure >> 10} KiB"


RETRIES_S = [alarm.retry_delay_ms(n) // 1000 for n in range(1, alarm.MAX_ATTEMPTS)]
WAIT_AT_MOST_S = alarm.retry_delay_ms(alarm.MAX_ATTEMPTS) // 1000

# How what the table says begins, by the first cell.
LIMITS: dict[str, str] = {
    "request body; of a scheduled event": f"{size(settings.BODY_LIMIT_BYTES)}; "
    f"{size(event_schedule.MAX_PAYLOAD_BYTES)} and "
    f"{size(front.SCHEDULE_BYTES - event_schedule.MAX_PAYLOAD_BYTES)} around it",
    "target of a request; its whole head": f"{size(limits.TARGET_BYTES)}; "
    f"{size(limits.HEAD_BYTES)}",
    "connections per process": f"{limits.CONNECTIONS:,}, or as many as it may open files for, "
    f"less {connections.FILES_FOR_ALL_ELSE}",
    "the first request of a connection, or the rest of a head": seconds(limits.HEAD_SECONDS),
    "between two requests of a connection": seconds(limits.IDLE_SECONDS),
    "the whole body of a request": seconds(limits.BODY_SECONDS),
    "an answer that its reader takes nothing of": seconds(limits.STALL_SECONDS),
    f"bodies over {size(limits.LARGE_BYTES)} read at once, waiting for that": (
        f"{limits.LARGE_BODIES}, {limits.LARGE_BODIES_WAITING}"
    ),
    "answers that nobody has taken yet, before pages are refused": size(limits.UNREAD_BYTES),
    "streams of events per process; what waits for the reader of one": (
        f"{limits.STREAMS:,}; {size(limits.STREAM_BYTES)}"
    ),
    "requests in Flask, waiting for a thread": f"{limits.THREADS}, {limits.WAITING_FOR_THREADS}",
    "pages of a hundred and more there, waiting": f"{limits.PAGE_THREADS}, {limits.PAGES_WAITING}",
    "pages of the dashboard, waiting": f"{limits.DASHBOARD_THREADS}, {limits.DASHBOARD_WAITING}",
    "reads that wait for the database": f"{async_reservations.READS_WAITING:,}",
    "commands that wait for the database, per process": f"{writer.CALLERS_LIMIT:,}",
    "wait for another process's write lock": ms(sqlite.BUSY_TIMEOUT_MS),
    "SQLite's WAL, beside readers that stay in the past": (
        f"{-(-sqlite.WAL_AUTOCHECKPOINT_PAGES * sqlite.PAGE_BYTES // 2**20)} MiB, "
        f"or a {WORDS[sqlite.WAL_SHARE_OF_FREE_SPACE]}th"
    ),
    "PostgreSQL: connect, wait for the log's lock, statement, answer": seconds(
        postgres.CONNECT_SECONDS,
        postgres_settings.LOCK_MS / 1000,
        postgres_settings.STATEMENT_MS / 1000,
        postgres.ANSWER_SECONDS,
    ),
    "PostgreSQL: standing still inside a transaction": ms(postgres_settings.IDLE_IN_TRANSACTION_MS),
    "PostgreSQL: finding out what became of a commit": seconds(session.ASK_OUTCOME_SECONDS),
    "PostgreSQL: connections per process": f"{postgres.READERS} for reading, 3 more",
    "alarms in a batch, batches under way per process": (
        f"{dispatcher.CLAIM_LIMIT}, {scheduler.MAX_OUTSTANDING_BATCHES}"
    ),
    "lease of a claim": f"{ms(dispatcher.LEASE_MS)}, at least "
    f"{dispatcher.LEASE_PER_BATCH_TIME} batches, and at least the wait after a failure "
    f"({RETRIES_S[0]} to {WAIT_AT_MOST_S} s)",
    "retries of a failing alarm": f"{alarm.MAX_RETRIES}",
    "page of a list": f"{read_routes.MAX_LIMIT:,}",
    "page of events": f"{size(pages.PAGE_BYTES)} of their states",
    "one event": f"{size(changes.EVENT_BYTES)} of values, or one value",
    "calls of objects under way, alarms of objects under way, per process": (
        f"{host.MAX_CALLS:,}, {alarms.MAX_RUNNING:,}"
    ),
    "objects in memory, per process": (
        f"{residents.MAX_OBJECTS:,}, for {host.IDLE_SECONDS:g} s idle"
    ),
    "wait for another process to hand an object over": seconds(residents.HANDOVER_SECONDS),
    "an object's alarm handler": f"{alarms.HANDLER_LIMIT_SECONDS / 60:g} minutes",
    "a transaction, `blockConcurrencyWhile`": (
        f"{transaction.TRANSACTION_SECONDS:g} s, {tasks.BLOCK_SECONDS:g} s"
    ),
    "work beside an object's handlers, when another process wants it": (
        f"{residents.LINGER_SECONDS:g} s, and {tasks.CANCEL_SECONDS:g} s to end"
    ),
    "suspects of having ended a process: others may take to end first, then their time alone": (
        f"{alarm_crowd.QUIET_SECONDS:g} s, {alarm_crowd.ALONE_SECONDS:g} s"
    ),
    "a scheduled event's payload, run; events of a schedule at once": (
        f"{size(event_schedule.MAX_PAYLOAD_BYTES)}, {schedule_pass.RUN_SECONDS / 60:g} minutes, "
        f"{schedule_pass.MAX_RUNNING}"
    ),
    "an object's value, key, keys in a call": f"{size(values.MAX_VALUE_BYTES)}, "
    f"{values.MAX_KEY_BYTES:,} bytes, {storage.MAX_BATCH_KEYS}",
    "due alarms that are not settled, or not claimed; claims that are not settled": seconds(
        readiness.ALARM_LIMIT_SECONDS
    ),
    "a pass over the alarms, a commit under way": (
        f"{readiness.PASS_LIMIT_SECONDS:g} s, {readiness.WRITE_LIMIT_SECONDS:g} s"
    ),
    "what `/readyz` waits for the database": seconds(readiness.ASK_SECONDS),
    "events that are replayed to make a damaged read model anew, with everybody waiting": (
        f"{remake.REPLAYED_EVENTS:,}"
    ),
    "nothing is claimed after claims had to be given back": (
        f"{dispatcher.PAUSE_SECONDS:g} s, doubling to {dispatcher.MAX_PAUSE_SECONDS:g} s"
    ),
    "lines that wait for a reader, for each of two streams": size(output.QUEUE_BYTES),
    "a stop's wait for lines to be read": seconds(output.STOP_SECONDS),
    "lines of the log about errors with one code that clients were told of": (
        f"one in {problems.TOLD_SECONDS:g} s"
    ),
    "nesting of an object's value, of an event's payload": (
        f"{values.MAX_DEPTH}, {values.MAX_DEPTH - 1} deep"
    ),
    "drain at a stop": seconds(settings.SHUTDOWN_GRACE_SECONDS),
}


def rows() -> dict[str, str]:
    """{first cell: second cell} of the table of limits."""
    table = (ROOT / "docs/guarantees.md").read_text().split("## Limits\n")[1]
    lines = re.findall(r"^\| (.+?) \| (.+?) \| .*\|$", table, re.MULTILINE)
    return {name: value for name, value in lines if name != "limit"}


def test_the_table_of_limits_has_a_row_for_each_that_is_held_against_the_code() -> None:
    assert rows().keys() == LIMITS.keys()


@pytest.mark.parametrize("name", LIMITS)
def test_the_table_of_limits_has_the_codes_figure_for(name: str) -> None:
    expected = LIMITS[name]
    assert re.match(re.escape(expected) + r"(?![\d.])", rows()[name]), (rows()[name], expected)


MAX_WORD = WORDS[alarm.MAX_ATTEMPTS]
ALL_RETRIES = ", ".join(map(str, RETRIES_S))
SENTENCES = [
    ("README.md", f"after {', '.join(map(str, RETRIES_S[:-1]))} and {RETRIES_S[-1]} s"),
    ("README.md", f'`{{"ttlSeconds": {reservation.MIN_TTL_SECONDS}..'),
    ("README.md", f"..{reservation.MAX_TTL_SECONDS}}}`"),
    ("README.md", f"Bodies may have {size(settings.BODY_LIMIT_BYTES)}"),
    ("README.md", f"drain, for at most {settings.SHUTDOWN_GRACE_SECONDS} s"),
    ("README.md", f"at most {size(pages.PAGE_BYTES)} at a time"),
    ("README.md", f"127.0.0.1:{settings.DEFAULT_PORT}"),
    ("docs/alarms.md", f"after {ALL_RETRIES} s"),
    ("docs/alarms.md", {0.25: "up to a quarter more"}[alarm.JITTER]),
    ("docs/alarms.md", f"fails for the {MAX_WORD}th time"),
    ("docs/alarms.md", f"the {MAX_WORD}th attempt fails"),
    ("docs/alarms.md", f"under a lease of {ownership.LEASE_MS // 1000} s"),
    ("docs/alarms.md", f"answers 503 after {residents.HANDOVER_SECONDS:g} s"),
    ("docs/alarms.md", f"for {host.IDLE_SECONDS:g} s, and the longest unused of"),
    ("docs/alarms.md", f"At most {size(values.MAX_VALUE_BYTES)} a value"),
    ("docs/alarms.md", f"handlers have {host.STOP_SECONDS:g} s to end"),
    ("docs/alarms.md", f"longer than {alarms.HANDLER_LIMIT_SECONDS / 60:g} minutes"),
    ("docs/architecture.md", f"failed: {RETRIES_S[0]}..{RETRIES_S[-1]} s later"),
    ("docs/architecture.md", f"failed {alarm.MAX_ATTEMPTS} times"),
    ("docs/architecture.md", f"up to {dispatcher.CLAIM_LIMIT} rows"),
    ("docs/architecture.md", f"| up to {limits.THREADS} | requests that go through Flask"),
    ("docs/architecture.md", f"| up to {async_reservations.READ_THREADS} | reads"),
    ("docs/decisions/0003-a-batch-is-the-job.md", f"up to {dispatcher.CLAIM_LIMIT} due alarms"),
    (
        "docs/decisions/0008-one-lock-on-the-log.md",
        f"({ms(postgres_settings.IDLE_IN_TRANSACTION_MS)})",
    ),
    ("docs/decisions/0008-one-lock-on-the-log.md", f"give up ({ms(postgres_settings.LOCK_MS)})"),
    ("docs/decisions/0008-one-lock-on-the-log.md", f"a lease ends ({ms(dispatcher.LEASE_MS)})"),
    ("docs/guarantees.md", f"when its lease ends, {ms(dispatcher.LEASE_MS)} later at first"),
    ("docs/guarantees.md", f"keep idle connections for less than {limits.IDLE_SECONDS:g} s"),
    ("docs/scale.md", f"at most {postgres.READERS + 3} for each process ({postgres.READERS} for"),
    ("docs/scale.md", f"their lease ends, {ms(dispatcher.LEASE_MS)} later"),
    ("docs/scale.md", f"given up after {postgres.ANSWER_SECONDS:g} s: 503"),
    ("docs/schedules.md", f"after {RETRIES_S[0]}, {RETRIES_S[1]} .. {RETRIES_S[-1]} s"),
    ("docs/schedules.md", f"{MAX_WORD} times: given up"),
    ("docs/schedules.md", f"at most {schedule_pass.MAX_RUNNING} of a\n  schedule at once"),
    ("docs/schedules.md", f"longer than {schedule_pass.RUN_SECONDS / 60:g} minutes"),
    ("docs/schedules.md", f"({schedule.MIN_REPEAT_MS} ms to 366 days)"),
    ("docs/schedules.md", f"companies a {WORDS[alarm.COMPANY_SHARE]}th as large"),
]


@pytest.mark.parametrize(("page", "sentence"), SENTENCES)
def test_the_page_says_the_codes_figure(page: str, sentence: str) -> None:
    assert sentence in (ROOT / page).read_text()


def increases(*figures: float) -> bool:
    return list(figures) == sorted(set(figures))


def test_on_postgresql_whoever_stands_still_loses_the_lock_before_others_give_up() -> None:
    """Decision 8: idle in a transaction < waiting for the lock < the leases."""
    assert increases(
        postgres_settings.IDLE_IN_TRANSACTION_MS,
        postgres_settings.LOCK_MS,
        min(dispatcher.LEASE_MS, ownership.LEASE_MS),
    )
    assert postgres_settings._NETWORK["tcp_user_timeout"] < dispatcher.LEASE_MS


def test_on_postgresql_the_servers_answer_comes_before_the_node_gives_up() -> None:
    """Else a node would drop a connection whose server is about to say why."""
    assert increases(
        postgres.CONNECT_SECONDS,
        postgres_settings.LOCK_MS / 1000,
        postgres_settings.UNANSWERED_MS / 1000,
        postgres_settings.STATEMENT_MS / 1000,
        postgres.ANSWER_SECONDS,
        writer.WAIT_LIMIT_SECONDS,
    )
    assert reader_pool.WAIT_SECONDS < postgres.ANSWER_SECONDS


def test_on_postgresql_a_lost_commit_is_asked_after_for_longer_than_it_can_be_under_way() -> None:
    assert increases(
        session.ASK_LOCK_MS,
        postgres_settings.IDLE_IN_TRANSACTION_MS,
        session.ASK_OUTCOME_SECONDS * 1000,
    )


def test_a_caller_waits_for_longer_than_the_transaction_before_its_own_can_take() -> None:
    assert sqlite.BUSY_TIMEOUT_MS / 1000 < writer.WAIT_LIMIT_SECONDS
    assert writer.CALLERS_LIMIT < writer.QUEUE_LIMIT  # room for claims, settlements, leases


def test_a_lease_is_renewed_several_times_before_its_owner_stops_believing_in_it() -> None:
    assert 2 * host.TEND_SECONDS < (ownership.LEASE_MS - ownership.MARGIN_MS) / 1000


def test_an_object_can_be_handed_over_while_its_caller_waits() -> None:
    assert residents.LINGER_SECONDS + tasks.CANCEL_SECONDS < residents.HANDOVER_SECONDS


def test_a_run_of_a_schedule_and_a_transaction_end_before_their_handler_must() -> None:
    assert increases(
        max(transaction.TRANSACTION_SECONDS, tasks.BLOCK_SECONDS),
        schedule_pass.RUN_SECONDS,
        alarms.HANDLER_LIMIT_SECONDS,
    )


def test_a_process_is_called_unready_only_after_what_is_usual_had_its_time() -> None:
    assert scheduler.POLL_SECONDS < readiness.PASS_LIMIT_SECONDS < readiness.ALARM_LIMIT_SECONDS
    assert dispatcher.LEASE_MS / 1000 < readiness.ALARM_LIMIT_SECONDS
    assert dispatcher.MAX_PAUSE_SECONDS < readiness.ALARM_LIMIT_SECONDS
    assert readiness.ASK_SECONDS < limits.READINESS_SECONDS


def test_at_a_stop_handlers_end_before_answers_and_these_before_the_process_is_killed() -> None:
    assert increases(
        host.STOP_SECONDS,
        server.DRAIN_SECONDS,
        settings.SHUTDOWN_GRACE_SECONDS,
        processes.KILL_AFTER_SECONDS,
    )
    assert server.DRAIN_SECONDS + output.STOP_SECONDS < processes.KILL_AFTER_SECONDS


def test_what_is_taken_at_the_door_finds_room_behind_it() -> None:
    assert increases(
        event_schedule.MAX_PAYLOAD_BYTES, front.SCHEDULE_BYTES, settings.BODY_LIMIT_BYTES
    )
    assert increases(event_schedule.MAX_PAYLOAD_BYTES, values.MAX_VALUE_BYTES, changes.EVENT_BYTES)
    assert async_reservations.READ_THREADS == postgres.READERS
    assert schedule.MAX_ID_CHARACTERS <= ids.MAX_NAME_CHARACTERS < values.MAX_KEY_BYTES
    assert limits.HEAD_SECONDS < limits.BODY_SECONDS < limits.IDLE_SECONDS

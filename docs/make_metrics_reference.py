"""Writes docs/metrics.md from the table of api/metrics.py, so that it cannot lie.

`make docs` runs it; a test holds the file against `reference()`.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from reservation_expiry.api.metrics import (
    ADDED_UP,
    BUILD,
    OF_DATABASE,
    PUBLISH_SECONDS,
    READY,
    UP,
    Metric,
)
from reservation_expiry.infrastructure.application import CENSUS_EVERY_SECONDS, CENSUS_SECONDS

HERE = Path(__file__).parent

INTRODUCTION = """\
# Metrics

Made from the code by `make docs`. `GET /metrics` answers in Prometheus' text format; with
`--auth required` it needs a token with the scope `read`:

```yaml
scrape_configs:
  - job_name: reservation-expiry
    static_configs: [{targets: ["127.0.0.1:8787"]}]
    authorization: {credentials_file: /etc/prometheus/reservation-expiry.token}
```

Rules for alerts and a dashboard are in [operate/](operate/README.md).
"""

ADDED = f"""\
## What the processes did

Added up over all processes of the `serve` that is asked, whichever of them answers, since it
began; those that have ended are counted in. What another process did shows within
{PUBLISH_SECONDS:g} s; a process that is killed takes what it did in its last {PUBLISH_SECONDS:g} s
with it. The counters are in a folder for temporary files that is removed at the end; that of a
parent that was killed stays. Of several nodes each is scraped by itself.
"""

ASKED = f"""\
## What the database tells

Asked at the scrape, and by each process at most every {CENSUS_EVERY_SECONDS:g} s, for counting is a
scan. If there is no answer within {CENSUS_SECONDS:g} s, `{UP.full_name}` is 0 and the others are
left out. Nodes on one database tell the same.
"""


def reference() -> str:
    asked = (UP, *OF_DATABASE, READY, BUILD)
    return "\n".join((INTRODUCTION, ADDED, *_table(ADDED_UP), "", ASKED, *_table(asked), ""))


def _table(metrics: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | kind | labels | what it is |"
    yield "|---|---|---|---|"
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        yield f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.help} |"


if __name__ == "__main__":
    (HERE / "metrics.md").write_text(reference())

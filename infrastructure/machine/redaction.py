"""Text as anybody may see it: passwords taken out.

What is shown (errors, log lines, the process's title) goes through `redacted`. It needs
nothing but Python, because the title must be changed before anything else is imported. It
would rather take out too much: a password that was not escaped may hold any character.
"""

import logging
import re
from urllib.parse import unquote

HIDDEN = "***"

_USER = re.compile(r":/{1,2}[^:@/?#\s'\"]*:")
# `password=x`, `?password=x&`, `PGPASSWORD=x`, `"password": "x"`. The value is quoted, or goes on
# to the next parameter, or to the end.
_KEY = r"[\w%.+-]{1,64}"
_NAMED = re.compile(rf"(?<![\w%.+-])(?P<key>{_KEY})(?:\s*=\s*|['\"]\s*:\s*)")
_VALUE = re.compile(
    rf"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"|.*?(?=[&;\s]{_KEY}\s*=|\Z)", re.DOTALL
)
_TOKEN = re.compile(r"(rxt_[0-9A-Za-z]{1,64}_)[0-9A-Za-z]+")
_SECRET_KEY = re.compile(r"pass(?!file)|pwd|secret|token|credential|scram_\w*key", re.IGNORECASE)


def redacted(text: str) -> str:
    """The text without the passwords in its URLs and connection strings, and without the
    secrets of tokens."""
    text = _TOKEN.sub(r"\1" + HIDDEN, text)
    user = _USER.search(text)
    end = text.rfind("@")  # the last one: a password may have an @ in it, and a / too
    if user and user.end() < end:
        text = text[: user.end()] + HIDDEN + text[end:]
    shown, place = [], 0
    while (named := _NAMED.search(text, place)) is not None:
        shown.append(text[place : named.end()])
        place = named.end()
        if _SECRET_KEY.search(unquote(named["key"])):
            value = _VALUE.match(text, place)
            end = len(text) if value is None else value.end()
            shown.append(HIDDEN if end > place else "")
            place = end
    return "".join(shown) + text[place:]


def without_secrets(record: logging.LogRecord) -> bool:
    """A filter for log handlers that lets every line pass, redacted."""
    record.msg, record.args = redacted(record.getMessage()), None
    return True

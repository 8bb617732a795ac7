# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records the API answers of a cluster, and reads recordings as if they were a cluster."""

from __future__ import annotations

import copy
import json
import re
import threading
import typing as t
import urllib.parse
from collections.abc import Mapping

from ...errors import InvalidSnapshot
from ...files import MIB, read_text, reason_of
from ...secret_options import quote
from .failures import NotRecorded
from .reader import Reader
from .shapes import WrongShape, check_shape, require_sane

LARGEST = 256 * MIB
"""Bytes that a file with a recording may have."""

_REQUIRED_PATH = "/cluster/resources"
_ENVELOPE_KEYS = frozenset({"data", "total", "success", "message", "errors", "changes"})
_SECRET_KEY = re.compile(r"password|secret|sshkeys|ticket|csrf|private|encryption[-_]?key|token(?!id$)", re.IGNORECASE)


class RecordedReader:
    """Returns recorded answers by API path. Each is the data itself, or the API's C({"data": ...}). A path may have a
    query (C(?type=vm)).

    Raises:
        InvalidSnapshot: the data is not a mapping of paths to answers, or lacks C(/cluster/resources).
    """

    def __init__(self, answers: object) -> None:
        if not isinstance(answers, Mapping):
            raise InvalidSnapshot(f"snapshot: expected a mapping of API paths to answers, got {type(answers).__name__}")
        self._answers: dict[str, t.Any] = {}
        for path, answer in answers.items():
            if not (isinstance(path, str) and path.startswith("/")):
                raise InvalidSnapshot(f'snapshot: expected an API path such as "{_REQUIRED_PATH}", got "{path}"')
            data = _without_envelope(answer)
            try:
                require_sane(data)
            except WrongShape as error:
                raise InvalidSnapshot(f'snapshot: "{path}": {error}') from None
            self._answers[_normalize(path)] = data
        if not isinstance(self._answers.get(_REQUIRED_PATH), list):
            raise InvalidSnapshot(f'snapshot: "{_REQUIRED_PATH}" with its list of rows is missing')

    @classmethod
    def from_file(cls, path: str) -> RecordedReader:
        """Return a reader of the JSON file at path.

        Raises:
            InvalidSnapshot: the file cannot be read or is not JSON, or as the constructor does.
        """
        try:
            return cls(json.loads(read_text(path, LARGEST)))
        except (OSError, ValueError, RuntimeError) as error:
            shown = quote("snapshot", path)
            raise InvalidSnapshot(f"snapshot: cannot read {shown} as JSON: {reason_of(error)}") from None

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        """Return the recorded data; raises NotRecorded when there is none for exactly this path and query."""
        key = _key(path, {**(params or {}), **more})
        if key not in self._answers:
            raise NotRecorded(f'snapshot: there is no answer for "{key}"', path=key)
        try:
            return check_shape(path, copy.deepcopy(self._answers[key]))
        except WrongShape as error:
            message = f'snapshot: "{key}" is not what Proxmox VE answers there: {error}'
            raise InvalidSnapshot(message, path=key) from None

    def server_time(self) -> None:
        """Return None: a recording does not have the server's time."""
        return

    def answer_time(self) -> None:
        """Return None, as server_time does."""
        return


class Recorder:
    """Reads through another reader and records every answer by path, without secrets.

    C(answers) has the recording in the format of RecordedReader. Calls that failed are not recorded.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._lock = threading.Lock()
        self.answers: dict[str, t.Any] = {}

    def get(self, path: str, params: Mapping[str, t.Any] | None = None, /, **more: t.Any) -> t.Any:
        query = {**(params or {}), **more}
        answer = self._reader.get(path, query)
        with self._lock:
            self.answers[_key(path, query)] = without_secrets(answer)
        return answer

    def server_time(self) -> float | None:
        return self._reader.server_time()

    def answer_time(self) -> float | None:
        return self._reader.answer_time()


def without_secrets(answer: t.Any) -> t.Any:
    """Return a copy of an answer in which no key of a mapping names a secret (cipassword, sshkeys, tokens, ...)."""
    if isinstance(answer, Mapping):
        return {key: without_secrets(value) for key, value in answer.items() if not _SECRET_KEY.search(str(key))}
    if isinstance(answer, list):
        return [without_secrets(item) for item in answer]
    return answer


def _key(path: str, params: Mapping[str, t.Any]) -> str:
    sent = {key: int(value) if isinstance(value, bool) else value for key, value in params.items() if value is not None}
    return path + (f"?{urllib.parse.urlencode(sorted(sent.items()))}" if sent else "")


def _normalize(path: str) -> str:
    bare, _separator, query = path.partition("?")
    return _key(bare.rstrip("/"), dict(urllib.parse.parse_qsl(query)))


def _without_envelope(answer: t.Any) -> t.Any:
    if isinstance(answer, Mapping) and "data" in answer and set(answer) <= _ENVELOPE_KEYS:
        return answer["data"]
    return answer

# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the simulated API refuses: errors as Proxmox VE words them, and errors that have no JSON body."""

from __future__ import annotations


class ApiError(Exception):
    """An answer with a status, a message and, for bad parameters, a text per parameter."""

    def __init__(self, status: int, message: str, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.errors = errors


class TaskError(Exception):
    """A worker that fails; the text is the task's exit status."""


class PlainError(Exception):
    """An answer outside the JSON formatter: a status line and a bare text body (often empty)."""

    def __init__(self, status: int, reason: str, body: str = "", delay: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.body = body
        self.delay = delay


MODIFIED = "detected modified configuration - file changed by other user? Try again."
"""What most writers of a file say to a ``digest`` that is not the file's; those of VM configs have other words."""


def die(message: str) -> ApiError:
    """The 500 that a plain ``die`` in a Proxmox handler becomes."""
    return ApiError(500, message)


def forbidden(reason: str = "") -> ApiError:
    """A 403 with Proxmox's wording; some checks name no reason."""
    return ApiError(403, f"Permission check failed ({reason})" if reason else "Permission check failed")


def parameter_error(**fields: str) -> ApiError:
    """The 400 with one text per parameter; dashes in names are written as underscores here."""
    errors = {name.replace("_", "-"): text for name, text in fields.items()}
    return ApiError(400, "Parameter verification failed.", errors)


def not_simulated(method: str, path: str) -> ApiError:
    """The 501 for a call of Proxmox that is not simulated."""
    return ApiError(501, f"Method '{method} {path}' is not simulated by this cluster")

# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Renders a view as a page: one file that contains its style and its script and loads nothing.

The templates escape every value, also its control characters. The content security policy of the page allows only its
own script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import typing as t
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.foreign_text import visible
from ansible_collections.qemu_scheduler.proxmox.plugins.plugin_utils.limits import limit_of

TEMPLATES = Path(__file__).resolve().parent / "templates"
SCRIPT = "page.js.j2"


def render(template: str, view: Mapping[str, t.Any], about: Mapping[str, t.Any]) -> str:
    """Return the HTML of a page.

    about names the page: C(cluster) and C(job), which may be empty, C(time), and C(plan_only).
    """
    environment = _environment()
    script = environment.get_template(SCRIPT).render()
    return environment.get_template(template).render(
        view=view, about=about, script=Markup(script), script_hash=_source_hash(script)
    )


def amount(number: float) -> str:
    """Return a number with a decimal place if it is a fraction below 100: C(12), C(12.5), C(125)."""
    return f"{number:.0f}" if number == int(number) or number >= 100 else f"{number:.1f}"


def percent(number: float, whole: float) -> str:
    """Return number as a percentage of whole, as a CSS length."""
    return f"{100 * number / whole if whole else 0:.2f}%"


@cache
def _environment() -> Environment:
    """Return the environment of the templates, which escapes all that they are given."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_without_controls,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(amount=amount, limit_of=limit_of, percent=percent)
    return environment


def _without_controls(value: t.Any) -> t.Any:
    """Return a value of a template as it is shown. Markup is the templates' own."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _source_hash(script: str) -> str:
    """Return the content security policy's source expression for a script in the page."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"

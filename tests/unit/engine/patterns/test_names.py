# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Patterns of names: they match what Python's `re` matches in full, in time that grows with the name alone."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import lines_run

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.patterns.names import (
    MAX_KNOWN_STEPS,
    NamePattern,
    compile_option_pattern,
    literal_start,
    name_pattern,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.errors import InvalidRequest

NAMES = st.text("ab1-._AB é", max_size=8)
CLASSES = [
    r"\d",
    r"\D",
    r"\w",
    r"\W",
    r"\s",
    r"\S",
    "[ab]",
    "[^ab]",
    "[a-c1]",
    "[^A-Z]",
    "[]a]",
    "[A-]",
    r"[\d-]",
    r"[^\W1]",
]
ATOMS = st.sampled_from([*"ab1-_ABé.^$", r"\.", r"[\]\-.]", r"\A", r"\Z", "", "()", *CLASSES])
QUANTIFIERS = st.sampled_from(["?", "*", "+", "{2}", "{0,2}", "{1,}", "{2,4}", "{0}", "??", "*?", "+?", "{1,3}?"])
REGEXES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map("({})".format),
        inner.map("(?i:{})".format),
        st.tuples(inner, QUANTIFIERS).map(lambda item: f"(?:{item[0]}){item[1]}"),
    ),
    max_leaves=8,
)


@settings(deadline=None, max_examples=300)
@given(literal=st.text("ab1-_AB", max_size=3), regex=REGEXES, quantifier=QUANTIFIERS, names=st.lists(NAMES, min_size=1))
def test_names_that_match__begin_with_the_literal_start(
    literal: str, regex: str, quantifier: str, names: list[str]
) -> None:
    for text in (f"{literal}{regex}", f"{literal}{quantifier}{regex}" if literal else regex):
        start, pattern = literal_start(text), re.compile(text)
        for name in (*names, *(literal + name for name in names)):
            assert name.startswith(start) or not pattern.fullmatch(name), (text, name)


@pytest.mark.parametrize(
    ("text", "start"),
    [("db-abc-.*", "db-abc-"), ("web", "web"), ("ab*", "a"), ("ab{2}", "a"), ("ab+", "ab"), ("a|b", ""), ("(?i)a", "")],
)
def test_literal_start__is_what_stands_before_anything_else(text: str, start: str) -> None:
    assert literal_start(text) == start


@settings(deadline=None, max_examples=300)
@given(regex=st.tuples(st.sampled_from(["", "(?i)"]), REGEXES).map("".join), names=st.lists(NAMES, min_size=1))
def test_name_pattern__matches_what_re_matches_in_full(regex: str, names: list[str]) -> None:
    pattern = NamePattern(regex)
    for name in names:
        assert pattern.matches(name) is (re.fullmatch(regex, name) is not None), name


@pytest.mark.parametrize(
    ("regex", "name"),
    [
        (r"([a-z0-9-]+)*\.lan", "a" * 60),
        ("(a+)+b", "a" * 60),
        ("(a|a)*b", "a" * 60),
        ("(a|aa)+$", "a" * 59 + "c"),
        ("(.*a){20}", "a" * 60 + "b"),
        ("((a*)*)*b", "a" * 60),
        ("(a?){60}a{60}", "a" * 59),
        ("(a|b)*a(a|b){40}", "ab" * 30 + "c"),
        (".{0,700}x", "a" * 60),
    ],
)
def test_name_pattern__never_backtracks(regex: str, name: str) -> None:
    name_pattern.cache_clear()
    lines_run(lambda: name_pattern(regex).matches(name), at_most=200_000)
    assert not name_pattern(regex).matches(name)


def test_name_pattern__takes_time_in_proportion_to_the_name() -> None:
    short, long = (
        lines_run(lambda n=n: NamePattern("(a|b)*a(a|b){9}").matches("ab" * n), at_most=10**6) for n in (50, 500)
    )
    assert long < 11 * short


def test_name_pattern__remembers_a_bounded_number_of_steps() -> None:
    """The states of this one are as many as the names of 15 letters."""
    pattern = NamePattern("(a|b)*a(a|b){14}")
    for number in range(3000):
        name = format(number, "b").zfill(15).replace("0", "b").replace("1", "a")
        assert pattern.matches(name) is name.startswith("a")
    known = sum(len(state.following) for state in pattern._states.values())
    assert 0 < known <= MAX_KNOWN_STEPS


def test_name_pattern__compiles_thousands_of_patterns_once_each() -> None:
    texts = [f"web-{number}-.*" for number in range(3000)]
    for text in texts:
        name_pattern(text)
    lines_run(lambda: [name_pattern(text) for text in texts], at_most=3100)


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(", "a group is not closed (at character 1)"),
        (r"(a)\1", "backreferences and octal escapes are not supported (at character 5)"),
        ("(?P<x>a)(?P=x)", "backreferences are not supported, as in RE2 (at character 10)"),
        ("(?=a)a", "look-ahead is not supported, as in RE2 (at character 2)"),
        ("(?<!a)b", "look-behind is not supported, as in RE2 (at character 2)"),
        (r"web\b.*", r"\b is not supported (at character 6)"),
        ("a{99999999999999999999}", "a repeat count has more than 9 digits (at character 2)"),
        ("a{999999999}", "it is too complex (more than 2000 symbols with repeats written out, or 500000 steps)"),
        ("(((a{99}){99}){99}){99}", "it is too complex"),
    ],
)
def test_compile_option_pattern__names_option_pattern_and_what_is_wrong(regex: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        lines_run(lambda: compile_option_pattern("vms[1].affinity[0].name", regex), at_most=2_000_000)
    assert f"vms[1].affinity[0].name: invalid regular expression {regex!r}: {reason}" in raised.value.message


def test_compile_option_pattern__shortens_a_pattern_that_is_very_long() -> None:
    with pytest.raises(InvalidRequest, match=r"'a{77}\.\.\.': it is longer than 10000 characters"):
        compile_option_pattern("node_regex", "a" * 20_000)

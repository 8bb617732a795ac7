# Copyright: (c) 2026, the qemu_scheduler.proxmox authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VMID regexes: the ids that match are those that Python's `re` finds one by one, found without going through them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.effort import lines_run

from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.vmids.choice import (
    Intersection,
    InvalidVMIDChoice,
    TakenVMIDs,
    parse_range,
)
from ansible_collections.qemu_scheduler.proxmox.plugins.module_utils.engine.vmids.pattern import (
    InvalidVMIDPattern,
    VMIDPattern,
    compile_pattern,
)

TRIED = range(100, 1301)
# Lines of which a computer runs most in a second: compiling is mostly loops of one short line.
LINES_OF_A_SECOND = 5_000_000

ATOMS = st.one_of(
    st.sampled_from(list("0123456789")),
    st.sampled_from(
        [".", r"\d", r"\w", r"\S", r"[^3]", r"[^\d]", r"[0-46]", r"[]5-]", r"[\d-]", r"[^\D1-3]", r"[ -2a]"]
    ),
    st.sampled_from([r"\D", "x", r"\.", "-", "^", "$", r"\A", r"\Z", "", "()"]),
)
QUANTIFIERS = st.sampled_from(
    ["?", "*", "+", "{2}", "{0,2}", "{1,}", "{2,4}", "{12}", "{0,99}", "??", "*?", "+?", "{1,3}?"]
)
REGEXES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join).map("({})".format),
        st.tuples(inner, QUANTIFIERS).map(lambda item: f"(?:{item[0]}){item[1]}"),
    ),
    max_leaves=8,
)
BOUNDS = st.tuples(st.integers(-1400, 1400), st.integers(-1400, 1400))
# Few different digits, so that a random id has a chance to match a random regex.
LONG_IDS = st.text("012359", min_size=5, max_size=9).map(int).filter(lambda vmid: vmid >= 100)


def compiled(regex: str) -> VMIDPattern | None:
    """Return the pattern, or None if it is refused because it matches no VMID; any other refusal is an error."""
    try:
        return compile_pattern(regex)
    except InvalidVMIDPattern as error:
        if "it matches no VMID" not in str(error):
            raise
        return None


@settings(deadline=None)
@given(regex=REGEXES, long_ids=st.lists(LONG_IDS, max_size=30))
def test_id__is_allowed_if_and_only_if_all_its_digits_match(regex: str, long_ids: list[int]) -> None:
    pattern = compiled(regex)
    for vmid in (*TRIED, *long_ids):
        expected = re.fullmatch(regex, str(vmid)) is not None
        assert (pattern is not None and vmid in pattern) is expected, vmid


@settings(deadline=None)
@given(regex=REGEXES, taken=st.sets(st.sampled_from(TRIED)), take_all=st.booleans(), bounds=BOUNDS)
def test_lowest_free_id_and_the_count__are_those_found_by_trying_each(
    regex: str, taken: set[int], take_all: bool, bounds: tuple[int, int]
) -> None:
    pattern = compiled(regex)
    tried = [vmid for vmid in TRIED if bounds[0] <= vmid <= min(bounds[1], 1300) and re.fullmatch(regex, str(vmid))]
    if take_all:
        taken = taken | set(tried[: len(tried) // 2])
    free = [vmid for vmid in tried if vmid not in taken]
    if pattern is None:
        assert not tried
        return
    upper = min(bounds[1], 1300)
    assert pattern.count(bounds[0], upper) == len(tried)
    assert pattern.lowest_free(TakenVMIDs(taken), bounds[0], upper) == (free[0] if free else None)


@settings(deadline=None)
@given(regex=REGEXES, bounds=st.tuples(LONG_IDS, LONG_IDS, LONG_IDS).map(sorted))
def test_counts_of_adjoining_intervals__add_up(regex: str, bounds: list[int]) -> None:
    pattern = compiled(regex)
    if pattern is not None:
        low, middle, high = bounds
        assert pattern.count(low, high) == pattern.count(low, middle) + pattern.count(middle + 1, high)
        assert pattern.count() == pattern.count(upper=middle) + pattern.count(lower=middle + 1)


def test_between_bounds_that_run_backwards_there__is_nothing() -> None:
    pattern = compile_pattern(r"1\d\d")
    assert pattern.count(lower=150, upper=120) == 0
    assert pattern.lowest_free(TakenVMIDs(), lower=150, upper=120) is None


def test_ids__come_lowest_first_whatever_their_length_and_order_in_the_regex() -> None:
    pattern = compile_pattern("(999999999|2000|150|1[0-9]{2}00)")
    taken, picked = TakenVMIDs(), []
    while (vmid := pattern.lowest_free(taken)) is not None:
        taken.add(vmid)
        picked.append(vmid)
    assert picked == [150, 2000, *range(10000, 20000, 100), 999_999_999]


def test_regex__has_to_match_in_full() -> None:
    pattern = compile_pattern("(12[0-9]|130)")
    assert [vmid for vmid in range(100, 100_000) if vmid in pattern] == list(range(120, 131))


@pytest.mark.parametrize(
    "regex", [r"^12\d$", r"\A12\d\Z", r"\A12\d\z", r"(^12\d)$", "(?<id>12[0-9])", r"^^(?:12\d$|x)$"]
)
def test_anchors_and_names_of_groups__change_nothing_in_pythons_and_gos_spelling(regex: str) -> None:
    assert compile_pattern(regex).count() == 10
    assert compile_pattern(regex).lowest_free(TakenVMIDs()) == 120


@pytest.mark.parametrize(
    "regex", ["5", "abc", r"0\d{3}", "", "12", r"\d{10}", r"1\d{2} ", "1^23", "1$23", r"(\d*)*x", "()"]
)
def test_regex_that_matches_no_vmid__is_refused(regex: str) -> None:
    with pytest.raises(InvalidVMIDPattern) as raised:
        compile_pattern(regex)
    assert str(raised.value) == (
        f"invalid VMID regex {regex!r}: it matches no VMID; all digits of a number from 100 to 999999999 have to match"
    )


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(?=1)123", "look-ahead is not supported, as in RE2 (at character 2)"),
        ("(?!1)123", "look-ahead is not supported"),
        ("(?<=1)123", "look-behind is not supported"),
        ("(?<!1)123", "look-behind is not supported"),
        ("(1)?(?(1)23|456)", "conditionals are not supported, as in RE2 (at character 6)"),
        ("(?P<a>1)(?P=a)1", "backreferences are not supported"),
        (r"(1)\1\1", "backreferences and octal escapes are not supported"),
        (r"[\1]23", "backreferences and octal escapes are not supported"),
        ("(?>1)23", "atomic groups are not supported"),
        ("(?#one)123", "comments are not supported"),
        ("(?x)123", "this kind of group is not supported"),
        ("1(?i)23", "this kind of group is not supported"),
        (r"\b123", r"\b is not supported"),
        (r"\x31\d\d", r"\x is not supported"),
        (r"1\d{2}\n", r"\n is not supported"),
        (r"[\n]123", r"\n is not supported"),
        ("[[:digit:]]{3}", r"POSIX classes are not supported; [[:digit:]] is \d"),
        ("1++23", "a repeat of a repeat needs a group, and possessive repeats are not supported"),
        ("1{2}{3}", "a repeat of a repeat needs a group"),
        ("123)", "')' without '('"),
        ("(123", "a group is not closed"),
        ("[123", "a class is not closed by ']'"),
        ("123[", "a class is not closed by ']'"),
        ("[]", "a class is not closed by ']'"),
        ("*123", "there is nothing that '*' could repeat"),
        ("1|+23", "there is nothing that '+' could repeat"),
        ("({2})", "there is nothing that '{' could repeat"),
        ("1{x}", "a repeat is written {m}, {m,} or {m,n}, and a literal brace \\{"),
        ("1{,3}", "a repeat is written {m}, {m,} or {m,n}"),
        ("1{" + "9" * 5000 + "}", "a repeat count has more than 9 digits"),
        ("1{2,9999999999}", "a repeat count has more than 9 digits"),
        ("1{3,2}", "{3,2} asks for more at least than at most"),
        ("[9-1]23", "the range 9-1 in a class runs backwards"),
        (r"[1-\d]23", r"\d cannot end a range in a class"),
        ("123\\", "nothing follows the last backslash"),
        ("[\\", "nothing follows the last backslash"),
    ],
)
def test_what_is_wrong_or_not_supported_in_a_regex__is_said_with_its_place(regex: str, reason: str) -> None:
    with pytest.raises(InvalidVMIDPattern) as raised:
        compile_pattern(regex)
    message = str(raised.value)
    assert message.startswith("invalid VMID regex ")
    assert reason in message
    assert re.search(r"\(at character \d+\)$", message)


def test_escapes_in_classes__are_literals_that_no_id_holds() -> None:
    assert compile_pattern(r"[\]\-1][\--2][0-\]]\.?").count() == 1 * 3 * 10


@pytest.mark.parametrize(
    ("regex", "count"),
    [
        ("(1+)+$", 7),
        (r"(\d*)*", 999_999_900),
        (r"((((\d*)*)*)*)*1", 99_999_990),
        (r"(\d|\d\d|\d?)+1(\d+)*9$", None),
        ("(1?){500}" * 10, 7),
        ("1{3,999999999}", 7),
        (r"(?:(?:\d{1,9}){1,9}){1,9}", 999_999_900),
        ("(" * 50 + "1" + ")*" * 50, 7),
        ("|".join(rf"\d*{digit}\d{{{digit}}}" for digit in range(9)), None),
        ("|".join(map(str, range(100, 700))), 600),
    ],
)
def test_regex_made_to_backtrack_for_ever__is_answered_at_once(regex: str, count: int | None) -> None:
    compile_pattern.cache_clear()
    lines_run(lambda: compile_pattern(regex).lowest_free(TakenVMIDs()), at_most=LINES_OF_A_SECOND)
    pattern = compile_pattern(regex)
    assert pattern.lowest_free(TakenVMIDs()) is not None
    assert count in {None, pattern.count()}


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        (r"((((((\d{1,9}){1,9}){1,9}){1,9}){1,9}){1,9})", "too complex"),
        ("(" * 40 + "){9}" * 40, "too complex"),
        ("1" * 3000, "too complex"),
        (r"\d?" * 1999, "too complex"),
        ("(^*)*123" + "$" * 1990, "too complex"),
        ("|".join(rf"\d*{digit}\d{{{after}}}" for digit in range(10) for after in range(8)), "too complex"),
        ("(" * 51 + "123" + ")" * 51, "groups are nested deeper than 50"),
        ("(" * 10_000, "groups are nested deeper than 50"),
        ("|" * 10_000_000, "it is longer than 10000 characters"),
    ],
)
def test_regex_that_would_cost_too_much__is_refused_at_once_in_a_short_message(regex: str, reason: str) -> None:
    with pytest.raises(InvalidVMIDPattern, match=reason) as raised:
        lines_run(lambda: compile_pattern(regex), at_most=LINES_OF_A_SECOND)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("regex", "first_million"),
    [
        (r"9\d{8}", range(900_000_000, 901_000_000)),
        (r"9\d{7}[02468]", range(900_000_000, 902_000_000, 2)),
        (r"[1-9]\d{7}5", range(100_000_005, 110_000_005, 10)),
    ],
)
def test_million_taken_ids__are_passed_over_in_a_moment(regex: str, first_million: range) -> None:
    pattern, taken = compile_pattern(regex), TakenVMIDs(first_million)
    assert len(taken) == 1_000_000
    assert pattern.lowest_free(taken) == first_million.stop
    lines_run(lambda: pattern.lowest_free(taken), at_most=300_000)


def test_ids_outside_the_bounds__are_not_gone_through() -> None:
    pattern, taken = compile_pattern(r"\d*[13579]"), TakenVMIDs()
    lines_run(lambda: 500_000_000 in pattern, at_most=1000)
    lines_run(lambda: pattern.lowest_free(taken, lower=500_000_000, upper=500_000_000), at_most=1000)
    lines_run(lambda: pattern.lowest_free(taken, lower=999_999_999), at_most=1000)
    lines_run(pattern.count, at_most=1000)


def test_thousand_picks_in_a_row__cost_no_more_when_each_begins_at_the_last() -> None:
    pattern, taken = compile_pattern(r"9\d{8}"), TakenVMIDs(range(900_000_000, 901_000_000))
    picked: list[int] = []

    def pick() -> None:
        vmid = pattern.lowest_free(taken, lower=picked[-1] if picked else 100)
        assert vmid is not None
        taken.add(vmid)
        picked.append(vmid)

    pick()
    for _ in range(999):
        lines_run(pick, at_most=1000)
    assert picked == list(range(901_000_000, 901_001_000))


def test_expression_that_many_vms_share__is_read_once() -> None:
    assert compile_pattern("(12[0-9]|130)") is compile_pattern("(12[0-9]|130)")


def test_groups__count_as_nested_only_within_groups() -> None:
    assert compile_pattern("(1)" * 3 + "(2)?" * 60).count() == 7


def test_regex__describes_itself_as_it_was_written() -> None:
    assert compile_pattern("(12[0-9]|130)").describe() == "VMID regex '(12[0-9]|130)'"


@settings(deadline=None)
@given(
    regex=REGEXES,
    ends=st.lists(st.sampled_from(TRIED), min_size=4, max_size=4).map(sorted),
    taken=st.sets(st.sampled_from(TRIED)),
    bounds=BOUNDS,
)
def test_range_and_a_regex_together__allow_what_both_allow(
    regex: str, ends: list[int], taken: set[int], bounds: tuple[int, int]
) -> None:
    pattern, allowed = compiled(regex), parse_range("{}-{},{}-{}".format(*ends))
    if pattern is None:
        return
    both = [vmid for vmid in TRIED if vmid in allowed and re.fullmatch(regex, str(vmid))]
    if not both:
        with pytest.raises(InvalidVMIDChoice, match="no VMID is in both"):
            Intersection(pattern, allowed)
        return
    intersection = Intersection(pattern, allowed)
    assert [vmid for vmid in TRIED if vmid in intersection] == both
    assert intersection.count() == len(both)
    free = [vmid for vmid in both if vmid not in taken and bounds[0] <= vmid <= bounds[1]]
    assert intersection.lowest_free(TakenVMIDs(taken), *bounds) == (free[0] if free else None)


def test_range_and_a_regex_that_share_no_vmid__are_refused_with_both_named() -> None:
    with pytest.raises(InvalidVMIDChoice) as raised:
        Intersection(compile_pattern(r"9\d{8}"), parse_range("100-150"))
    assert str(raised.value) == r"no VMID is in both VMID range 100-150 and VMID regex '9\\d{8}'"


def test_intersection__describes_both_sides() -> None:
    intersection = Intersection(compile_pattern(r"1\d0"), parse_range("100-150"))
    assert intersection.describe() == r"VMID range 100-150 and VMID regex '1\\d0'"

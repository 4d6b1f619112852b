"""What pages are made of: formulas, pictures, code."""

from html import unescape
from re import sub
from typing import Any

import pytest

from docs import figures
from docs.notation import formulas
from docs.pictures import PICTURES, picture
from docs.pool_pictures import states
from docs.source import NoSuchCode, find, listing, place, rests_on
from docs.tables import bounds
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.attention import attends, tail_blocks
from hitproof.spec.claims import CLAIMS
from hitproof.spec.hits import in_required_run, run_start, valid_hit
from hitproof.spec.pool import is_sound, touched
from hitproof.spec.releases.fine import witness_unit
from hitproof.spec.releases.horizons import horizon
from hitproof.spec.terms import Formula, Term, implies, not_


def plain(mathml: str) -> str:
    """A formula in one line."""
    fractions = sub(r"<mfrac><mrow>(.*?)</mrow><mrow>(.*?)</mrow></mfrac>", r"(\1)/(\2)", mathml)
    return unescape(sub(r"<[^>]*>", "", fractions)).translate(
        {0x2212: "-", 0x2228: "|", 0x2227: "&"}
    )


def written(clause: Any) -> list[tuple[str, str]]:
    return [(line.case, plain(line.mathml)) for line in formulas(clause)]


def test_formulas_are_the_clauses_run_on_symbols() -> None:
    assert written(tail_blocks) == [("", "tail blocks(w,b)=⌈(w-1)/(b)⌉")]
    assert ("sliding window", "run start(L)=L-t") in written(run_start)
    assert ("window given", "attends(q,k,w)⇔k≤q&q-k<w") in written(attends)
    assert ("mamba", "in required run(i,L)⇔0≤i&L-1≤i&i<L") in written(in_required_run)
    assert ("mamba", "witness unit(i,units)=i·units+units-1") in written(witness_unit)
    assert ("", "touched:queued←queued-max(1-ref count,0)") in written(touched)


def test_what_decides_by_values_has_no_formula() -> None:
    assert formulas(valid_hit) == ()
    assert formulas(horizon) == ()  # it asks which policy, which no symbol can answer


def test_parentheses_say_what_is_computed() -> None:
    def tangled(token: Term, window: Term) -> Formula:
        either = (token < 1) | ((window < 2) & (token == window))
        both = either & (token - (window - 1) <= 2)
        return implies(both, not_(either))

    assert written(tangled) == [("", "tangled(k,w)⇔(k<1|(w<2&k=w))&k-(w-1)≤2⇒¬(k<1|(w<2&k=w))")]


def test_every_claim_has_a_formula_and_a_picture() -> None:
    assert PICTURES.keys() == CLAIMS.keys()
    for claim in CLAIMS.values():
        beneath = {*claim.clauses, *(each for c in claim.clauses for each in rests_on(c))}
        assert any(formulas(each) for each in beneath), claim.name
        assert picture(claim.name).figures
        assert picture(claim.name).caption


def test_the_pool_that_is_drawn_is_sound() -> None:
    assert all(is_sound(block) for block in states().values())


def test_code_is_found_by_its_name_and_shown_as_it_stands() -> None:
    assert find("spec.attention.tail_blocks") is tail_blocks
    assert place(tail_blocks).startswith("spec/attention.py:")
    assert "ceil_div(window - 1, block_size)" in listing(tail_blocks)
    for name in ("spec.attention.no_such", "no_such.module", "spec.hits.Cached.no_such"):
        with pytest.raises(NoSuchCode, match=r"no.such"):
            find(name)


def test_figures_are_computed() -> None:
    assert "in 2 blocks, the tail" in figures.window_reach(6, 4, 3)
    assert "in 1 block, the tail" in figures.window_reach(5, 4, 3)
    assert "token 7 in a draft layer depends on token 8" in figures.draft_entries(4, 2)


def test_bounds_are_those_of_the_configurations() -> None:
    rows = {line.split("|")[1].strip(): line for line in bounds().splitlines()[2:]}
    assert set(rows) == set(Profile)
    for profile in Profile:
        blocks = [each.num_blocks for each in configurations(profile)]
        assert f"at least {min(blocks)} blocks" in rows[profile]

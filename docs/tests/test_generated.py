"""What pages are made of: pictures, code."""

import pytest

from docs import figures
from docs.pictures import PICTURES, picture
from docs.pool_pictures import states
from docs.source import NoSuchCode, find, listing, place
from docs.tables import bounds
from hitproof.conformance.scope.grid import configurations
from hitproof.conformance.scope.profiles import Profile
from hitproof.spec.attention import tail_blocks
from hitproof.spec.claims import CLAIMS
from hitproof.spec.pool import is_sound


def test_every_claim_has_a_picture() -> None:
    assert PICTURES.keys() == CLAIMS.keys()
    for claim in CLAIMS.values():
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

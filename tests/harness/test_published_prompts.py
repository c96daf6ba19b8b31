"""The hashes of published wordings: each piece changes with its own texts alone, and a method needs only its pieces."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from harness.launch import main
from harness.prompt_file import BUILT_IN, Piece, Published, parse, piece_hashes, published, unlike


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("[instruction.thinking]\nmath = 'x'", {"opening.math"}),
        ("[instruction.thinking]\nchoice = 'x'", {"opening.choice"}),
        ("system = 'x'", {"opening.math", "opening.choice"}),
        ("[options]\nseparator = 'x'", {"opening.choice"}),
        ("step_separator = 'x'", {"steps"}),
        ("[score]\nthought = 'x'", {"score"}),
        ("[separate_score]\nrubric = 'x'", {"separate_score"}),
        ("[step_choice]\nblank = 'x'", {"step_choice"}),
        ("[chain_choice]\nbefore = ''\nafter = ''", {"chain_choice"}),
        ("[reward]\nquestion = 'x'", {"reward"}),
        ("[equivalence]\nclosing = 'x'", {"equivalence"}),
    ],
)
def test_a_piece_changes_with_its_own_texts_alone(text: str, pieces: set[Piece]) -> None:
    own, built_in = piece_hashes(parse(text, "f")), piece_hashes(BUILT_IN)
    assert {piece for piece in own if own[piece] != built_in[piece]} == pieces


def test_the_pieces_of_published_wordings_are_well_formed_and_not_the_harnesss_own() -> None:
    assert set(published()) == {"scot", "specreason"}, "SpecCoT published neither prompts nor a program"
    for paper, told in published().items():
        assert isinstance(told, Published)
        shared = {piece for piece in told.pieces if told.pieces[piece] == piece_hashes(BUILT_IN)[piece]}
        assert shared <= {"steps"}, "SpecReason's steps end at a blank line too"
        assert "commit" in told.source, paper


def test_a_method_needs_the_pieces_that_it_uses() -> None:
    assert unlike(BUILT_IN, "specreason", "specreason", "math") == ["opening.math", "score"]
    assert unlike(BUILT_IN, "specreason", "vanilla", "choice") == ["opening.choice"]
    assert unlike(BUILT_IN, "scot", "scot", "math") == ["opening.math", "chain_choice"]
    bare = parse("[instruction.thinking]\nmath = ''", "f")
    assert unlike(bare, "scot", "scot", "math") == ["chain_choice"], "SCoT's program asks the bare question"
    assert unlike(bare, "scot", "vanilla", "math") == []


def test_the_listing_shows_which_pieces_are_the_papers() -> None:
    listed = CliRunner().invoke(main, ["--list", "prompts"]).output.splitlines()
    steps = piece_hashes(BUILT_IN)["steps"]
    assert f"#   steps          {steps}  (specreason's)" in listed
    assert any(line.endswith(f"(scot's is {published()['scot'].pieces['chain_choice']})") for line in listed)

import json

from tools.pictures.recording import COLUMNS, SECONDS, asciicast, events


def test_what_a_command_writes_becomes_an_animation_of_a_fixed_length() -> None:
    recorded = list(events("printf one; sleep 0.2; printf two"))
    assert "".join(text for _, text in recorded).endswith("onetwo")
    header, *lines = [json.loads(line) for line in asciicast(recorded).splitlines()]
    assert header["width"] == COLUMNS
    assert [text for _, _, text in lines] == [text for _, text in recorded]
    assert lines[-1][0] == SECONDS

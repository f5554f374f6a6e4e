from __future__ import annotations

from rich.console import Console

from offaxis.cli.terminal import wrap_text

SPACE = "\N{NO-BREAK SPACE}"


def test_lines_break_at_spaces_and_never_at_a_no_break_space() -> None:
    text = f"it keeps an expected 46.5 ± 5.2 % of {'answers ' * 9}".strip()
    fixed = text.replace("46.5 ± 5.2 %", f"46.5{SPACE}±{SPACE}5.2{SPACE}%")
    for width in range(15, 60):
        console = Console(width=width, highlight=False, markup=False)
        with console.capture() as captured:
            console.print(wrap_text(fixed, console))
        lines = captured.get().splitlines()
        assert max(map(len, lines)) <= width
        assert sum(f"46.5{SPACE}±{SPACE}5.2{SPACE}%" in line for line in lines) == 1
    # The broken control: with ordinary spaces a line begins in the middle of the interval.
    console = Console(width=27)
    assert "5.2" in [line.split()[0] for line in wrap_text(text, console).splitlines()]

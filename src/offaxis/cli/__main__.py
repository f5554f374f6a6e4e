"""``python -m offaxis.cli``: the same as the ``offaxis`` command."""

from offaxis.cli import main

main()

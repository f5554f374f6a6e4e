"""``python -m experiments``: the paper's studies, their data sets, and the demos."""

from offaxis.cli import run

if __name__ == "__main__":
    from experiments.cli import app

    run(app)

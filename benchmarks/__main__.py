"""``python -m benchmarks``: speed, memory and growth on this machine, beside rivals."""

from offaxis.cli import run

if __name__ == "__main__":
    from benchmarks.run import app

    run(app)

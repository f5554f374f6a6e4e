"""``python -m benchmarks``: speed, memory and growth on this machine, compared with other tools."""

from offaxis.cli import run

if __name__ == "__main__":
    from benchmarks.run import app

    run(app)

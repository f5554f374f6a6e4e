"""Add public vectors and questions of a release, populations of rounds, and when rows are deleted.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables; of all rounds that are marked, rows may be deleted."""
    op.create_table(
        "support",
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("release", name="pk_support"),
        sa.ForeignKeyConstraint(["release"], ["release.hash"], name="fk_support_release"),
    )
    op.create_table(
        "question",
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("outputs", sa.Integer, nullable=False),
        sa.Column("answers", sa.Text),
        sa.PrimaryKeyConstraint("release", "name", name="pk_question"),
        sa.ForeignKeyConstraint(["release"], ["release.hash"], name="fk_question_release"),
    )
    op.create_table(
        "population",
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("support", sa.String(64), nullable=False),
        sa.Column("counted", sa.Integer, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("round", name="pk_population"),
        sa.ForeignKeyConstraint(["round"], ["round.id"], name="fk_population_round"),
    )
    op.add_column("round", sa.Column("emptied_at", sa.DateTime(timezone=True)))
    op.execute("UPDATE round SET emptied_at = deleted_at")


def downgrade() -> None:
    """Drop the tables and the column."""
    op.drop_column("round", "emptied_at")
    for name in ("population", "question", "support"):
        op.drop_table(name)

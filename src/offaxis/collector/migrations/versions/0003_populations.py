"""Add public vectors and questions of a release, and populations of rounds.

Revision ID: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the tables."""
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


def downgrade() -> None:
    """Drop the tables."""
    for name in ("population", "question", "support"):
        op.drop_table(name)

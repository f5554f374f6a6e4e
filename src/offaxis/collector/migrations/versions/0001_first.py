"""The first tables.

Revision ID: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_number = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "release",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("profile", sa.Text),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("hash", name="pk_release"),
    )
    op.create_table(
        "round",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("document", sa.LargeBinary, nullable=False),
        sa.Column("signature", sa.LargeBinary, nullable=False),
        sa.Column("release", sa.String(64), nullable=False),
        sa.Column("base", _number, nullable=False),
        sa.Column("withdrawn", sa.Integer, nullable=False),
        sa.Column("closed_at", sa.DateTime(timezone=True)),
        sa.Column("deleted_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_round"),
        sa.UniqueConstraint("name", name="uq_round_name"),
        sa.ForeignKeyConstraint(["release"], ["release.hash"], name="fk_round_release"),
    )
    op.create_table(
        "report",
        sa.Column("seq", _number, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("id", sa.LargeBinary(32), nullable=False),
        sa.Column("label", sa.String(100)),
        sa.Column("content", sa.LargeBinary),
        sa.PrimaryKeyConstraint("seq", name="pk_report"),
        sa.ForeignKeyConstraint(["round"], ["round.id"], name="fk_report_round"),
        sqlite_autoincrement=True,
    )
    op.create_index("uq_report_round_id", "report", ["round", "id"], unique=True)
    op.create_table(
        "moments",
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("upto", _number, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("round", name="pk_moments"),
        sa.ForeignKeyConstraint(["round"], ["round.id"], name="fk_moments_round"),
    )
    op.create_table(
        "token",
        sa.Column("id", sa.Integer, nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("role", sa.String(10), nullable=False),
        sa.Column("sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("revoked_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("sha256", name="uq_token_sha256"),
    )


def downgrade() -> None:
    """Drop the tables."""
    for name in ("token", "moments", "report", "round", "release"):
        op.drop_table(name)

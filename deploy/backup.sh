#!/bin/sh
# Back up the database of a running collector, and delete old backups.
#
#   backup.sh DATABASE FOLDER DAYS
#
# DATABASE is the collector's: sqlite:///FILE or postgresql://… (as offaxis_backup, with the password
# from PGPASSFILE). Withdrawn or deleted reports stay in backups for up to DAYS: all copies of a
# report are deleted keep_days + DAYS after its round has closed.
set -eu
umask 077

if [ $# -ne 3 ]; then
    echo "usage: backup.sh DATABASE FOLDER DAYS" >&2
    exit 2
fi
database=$1 folder=$2 days=$3
case $days in
    '' | *[!0-9]*) echo "backup.sh: DAYS must be an integer, got $days" >&2; exit 2 ;;
esac
[ -d "$folder" ] || { echo "backup.sh: folder $folder not found" >&2; exit 2; }

case $database in
    sqlite:///*) ending=db ;;
    postgresql://* | postgres://*) ending=dump ;;
    *) echo "backup.sh: DATABASE must be sqlite:///FILE or postgresql://…" >&2; exit 2 ;;
esac
# The draft is renamed when it is complete.
name=$folder/offaxis-$(date -u +%Y%m%dT%H%M%SZ).$ending
draft=$name.draft
trap 'rm -f "$draft"' EXIT

if [ $ending = db ]; then
    # A consistent copy, including the write-ahead log, while uploads continue. Copying the file is
    # not enough.
    "${PYTHON:-python3}" - "${database#sqlite:///}" "$draft" <<'PYTHON'
import pathlib, sqlite3, sys

source = sqlite3.connect(pathlib.Path(sys.argv[1]).absolute().as_uri() + "?mode=ro", uri=True)
copy = sqlite3.connect(sys.argv[2])
source.backup(copy)
copy.execute("PRAGMA journal_mode = DELETE")
check = copy.execute("PRAGMA integrity_check").fetchone()[0]
copy.close()
sys.exit(None if check == "ok" else f"backup.sh: the copy is damaged: {check}")
PYTHON
else
    pg_dump --format=custom --no-owner --no-privileges --schema=offaxis --file="$draft" "$database"
    pg_restore --list "$draft" >/dev/null
fi
sync "$draft"
mv "$draft" "$name"

find "$folder" -maxdepth 1 -name 'offaxis-*' -type f -mmin "+$((days * 1440))" -delete
echo "$name"

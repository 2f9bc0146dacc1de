#!/bin/sh
# The calls of tests/runtimes/http2_clients.rs by nghttp: URL AUTHORITY. Each has a connection of its own, but those at once, which share one.
url=$1 authority=$2
body=$(mktemp)
trap 'rm -f "$body"' EXIT
head -c 1048576 /dev/zero >"$body"
# The columns of its statistics end with status, size and path.
statuses() { awk '/^ *[0-9]+ +\+/ { print $(NF - 2) }'; }
call() { nghttp --no-verify-peer -t 200 -H ":authority: $authority" "$@"; }
printf '%s %s\n' "$(call "$url/hello")" "$(call -ns "$url/hello" | statuses)"
printf '%s %s\n' "$(call -d "$body" "$url/length")" "$(call -ns -d "$body" "$url/length" | statuses)"
printf '%s %s\n' "$(call "$url/not-modified")" "$(call -ns "$url/not-modified" | statuses)"
printf '%s %s\n' "$(call -nv -H ':method: HEAD' "$url/hello" | awk '/ content-length: / { print $NF }')" \
    "$(call -ns -H ':method: HEAD' "$url/hello" | statuses)"
call -ns -m 20 "$url/together/1" | awk '/^ *[0-9]+ +\+/ { print $(NF - 1), $(NF - 2) }'

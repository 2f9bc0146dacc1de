#!/bin/sh
# The calls of tests/runtimes/http2_clients.rs by curl: URL [CA] [PROXY]. Over TLS a connection is used for all calls one after the other,
# and another one for those at once. By prior knowledge each call has its own: curl 7.88 fails with a second one, at every server.
url=$1 ca=$2 proxy=$3
body=$(mktemp)
trap 'rm -f "$body"' EXIT
head -c 1048576 /dev/zero >"$body"
line=' %{http_code}\n'
length="%header{content-length}$line"
common='--silent --show-error --max-time 200'
# The options are words, and `--next` forgets them.
# shellcheck disable=SC2086
case $url in
http:*)
    common="$common --http2-prior-knowledge"
    curl $common -w "$line" "$url/hello" &&
        curl $common -w "$line" --data-binary "@$body" "$url/length" &&
        curl $common -w "$line" "$url/not-modified" &&
        curl $common --head -o /dev/null -w "$length" "$url/hello" &&
        seq 20 | xargs -P 20 -I '{}' curl $common -o /dev/null -w "%{size_download}$line" "$url/together/{}"
    ;;
*)
    common="$common --http2 --cacert $ca ${proxy:+--proxy $proxy}"
    curl $common -w "$line" "$url/hello" \
        --next $common -w "$line" --data-binary "@$body" "$url/length" \
        --next $common -w "$line" "$url/not-modified" \
        --next $common --head -o /dev/null -w "$length" "$url/hello" &&
        curl $common --parallel -o /dev/null -w "%{size_download}$line" "$url/together/[1-20]"
    ;;
esac
